"""The states of a sandbox, with the sign and the colour of each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Status(StrEnum):
    """The state of a sandbox."""

    STARTING = "starting", "◐", "~", "warning"
    UNREACHABLE = "unreachable", "◌", "?", "error"
    """The sandbox runs, but its sockets were removed. It can only be ended."""
    RUNNING = "running", "●", "*", "success"
    PAUSED = "paused", "‖", "=", "warning"
    STOPPING = "stopping", "◐", "~", "warning"
    """The sandbox has ended, and its remains are being cleaned up."""
    STOPPED = "stopped", "○", "-", "muted"
    CRASHED = "crashed", "✗", "x", "error"
    """The sandbox ended without being asked to."""
    BROKEN = "broken", "✗", "x", "error"
    """The sandbox's record cannot be read; ``Entry.error`` says why."""
    DELETING = "deleting", "◐", "~", "warning"
    """The app that shows it is removing it; nobody else sees this state."""

    _value_: str
    sign: str
    """A character that tells it without colours, beside its word."""
    plain_sign: str
    """The same in ASCII."""
    role: str
    """Its colour: "success", "warning", "error" or "muted"."""

    # With defaults, since types allow ``Status(word)`` only so, which finds a member.
    def __new__(cls, word: str, sign: str = "", plain_sign: str = "", role: str = "") -> Self:
        made = str.__new__(cls, word)
        made._value_ = word
        made.sign, made.plain_sign, made.role = sign, plain_sign, role
        return made

    @property
    def is_live(self) -> bool:
        """Whether a process of the sandbox runs or starts."""
        return self not in ENDED

    @property
    def text(self) -> str:
        """Its sign and its word."""
        return f"{self.sign} {self.value}"


ENDED = frozenset({Status.STOPPED, Status.CRASHED, Status.BROKEN, Status.DELETING})
RUNS = frozenset({Status.RUNNING})
HAS_MACHINE = frozenset({Status.RUNNING, Status.PAUSED})
CAN_END = HAS_MACHINE | {Status.UNREACHABLE}
CAN_START = frozenset({Status.STOPPED, Status.CRASHED})
CAN_BE_COPIED = HAS_MACHINE | CAN_START
