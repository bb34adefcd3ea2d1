"""A connection to a guest's agent, which each sandbox has for itself."""

from quicksand_core._absent import refusing

_AGENT = "use Sandbox.execute, or Sandbox.request for any method of the agent"

__getattr__ = refusing(
    __name__,
    VirtioSerialAgentClient=_AGENT,
    STDIN_CAPABILITY=_AGENT,
    STDIN_UNSUPPORTED=_AGENT,
)
