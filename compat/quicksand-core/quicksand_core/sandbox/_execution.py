"""Commands in a sandbox: methods of `Sandbox`, and of its users."""

from quicksand import ExecuteResult, SandboxUser

__all__ = ["ExecuteResult", "SandboxUser"]
