"""Lines of the command log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A line of the command log: what an action does, as the command that does the same."""

    command: str
    outcome: str = "running"
    """ "running", "done", "failed" or "cancelled"."""
    seconds: float | None = None
