"""The host side of the agent protocol (docs/internals/agent-protocol.md)."""
