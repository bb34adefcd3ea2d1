"""The lease of a sandbox that is started elsewhere if its machine is lost: its QEMUs may run until
then (docs/internals/fleet.md, "Restart elsewhere").

After that the sandbox may run twice. So QEMU is killed at the lease's end; and from the first lease
on this keeper holds the owner's end of the leash (leash.py), so that QEMU ends with the keeper.
"""

import os
import time

from .owner_wait import now

LOOK_S = 1.0
"""The most seconds between two looks at the clock: poll(2) does not count the time for which the
host was suspended."""


class Lease:
    """The right to run until a moment of the clock `now`, for one epoch of the sandbox."""

    def __init__(self) -> None:
        self.epoch = 0
        self.until: float | None = None
        """The end of the lease; None before the first grant."""
        self.is_over = False
        self._leash_end: int | None = None

    def grant(self, epoch: int, until: float) -> None:
        """Extend the lease; an earlier ``until`` changes nothing. Raises ValueError for an older
        epoch, and once the lease is over."""
        if epoch < self.epoch:
            raise ValueError(f"the epoch {epoch} is older than {self.epoch}")
        if self.is_over or self.has_ended():
            raise ValueError("the lease is over")
        self.epoch = epoch
        self.until = until if self.until is None else max(until, self.until)

    def has_ended(self) -> bool:
        """Whether the lease is over."""
        return self.until is not None and now() >= self.until

    @property
    def look_at(self) -> float | None:
        """The monotonic time of the next look; None if there is no lease."""
        if self.until is None or self.is_over:
            return None
        return time.monotonic() + min(LOOK_S, max(0.0, self.until - now()))

    @property
    def is_holding(self) -> bool:
        """Whether QEMU ends with this process."""
        return self._leash_end is not None

    def hold(self, leash_end: int) -> None:
        """Keep the owner's end of the leash as long as this process lives."""
        if self._leash_end is not None:
            os.close(self._leash_end)
        self._leash_end = leash_end
