"""The sandbox."""

from quicksand import ExecuteResult, Sandbox, SandboxConfig, SandboxConfigParams, SandboxUser

__all__ = ["ExecuteResult", "Sandbox", "SandboxConfig", "SandboxConfigParams", "SandboxUser"]
