"""The states of sandboxes and mounts, with the sign and the colour of each."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Signed(StrEnum):
    """A state with its sign and its colour."""

    _value_: str
    sign: str
    """A character that tells it without colours, beside its word."""
    role: str
    """Its colour: "success", "warning", "error" or "muted"."""
    plain_sign: str
    """The sign in ASCII."""

    # With defaults, since types allow ``Status(word)`` only so, which finds a member.
    def __new__(cls, word: str, sign: str = "", role: str = "", plain_sign: str = "") -> Self:
        made = str.__new__(cls, word)
        made._value_ = word
        made.sign, made.role, made.plain_sign = sign, role, plain_sign
        return made

    @property
    def text(self) -> str:
        """Its sign and its word."""
        return f"{self.sign} {self.value}"


class Status(Signed):
    """The state of a sandbox."""

    STARTING = "starting", "◐", "warning", "~"
    UNREACHABLE = "unreachable", "◌", "error", "?"
    """The sandbox runs, but its sockets were removed. It can only be ended."""
    RUNNING = "running", "●", "success", "*"
    PAUSED = "paused", "‖", "warning", "="
    STOPPING = "stopping", "◐", "warning", "~"
    """The sandbox has ended, and its remains are being cleaned up."""
    STOPPED = "stopped", "○", "muted", "-"
    CRASHED = "crashed", "✗", "error", "x"
    """The sandbox ended without being asked to."""
    BROKEN = "broken", "✗", "error", "x"
    """The sandbox's record cannot be read; ``Entry.error`` says why."""
    DELETING = "deleting", "◐", "warning", "~"
    """The app that shows it is removing it; nobody else sees this state."""

    @property
    def is_live(self) -> bool:
        """Whether a process of the sandbox runs or starts."""
        return self not in ENDED


ENDED = frozenset({Status.STOPPED, Status.CRASHED, Status.BROKEN, Status.DELETING})
RUNS = frozenset({Status.RUNNING})
HAS_MACHINE = frozenset({Status.RUNNING, Status.PAUSED})
CAN_END = HAS_MACHINE | {Status.UNREACHABLE}
CAN_START = frozenset({Status.STOPPED, Status.CRASHED})
CAN_BE_COPIED = HAS_MACHINE | CAN_START


class MountState(Signed):
    """The state of a mount."""

    MOUNTED = "mounted", "●", "success"
    MOUNTING = "mounting", "◐", "warning"
    """The guest is being asked to mount it; it is not there yet."""
    UNFINISHED = "unfinished", "◌", "warning"
    """The process that asked the guest for it has ended; only the guest knows if it is mounted."""
    NOT_SERVED = "not served", "✗", "error"
    """The directory's server has ended; the guest sees errors there."""
    AT_START = "at its start", "○", "muted"
    """The directory will be mounted at the sandbox's next start."""
    LEFT_OUT = "not mounted", "⊘", "error"
    """The directory should be mounted, but could not be; `MountFacts.reason` says why."""
    MOVED = "moved away", "◇", "warning"
    """The directory is mounted, but has left its place on the host: moved, removed or replaced."""

    @property
    def is_now(self) -> bool:
        """Whether it is mounted in the guest, served or not."""
        return self in (MountState.MOUNTED, MountState.NOT_SERVED, MountState.MOVED)
