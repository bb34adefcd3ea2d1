"""The sandbox's class."""

from quicksand import ExecuteResult, Sandbox, SandboxConfig

__all__ = ["ExecuteResult", "Sandbox", "SandboxConfig"]
