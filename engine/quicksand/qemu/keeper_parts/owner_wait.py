"""A sandbox that belongs to nobody yet: a spare, which waits for the start that takes it.

While it waits, this keeper holds the owner's end of the leash (leash.py), so QEMU ends with the
keeper. The start that takes the spare gets that end, and gives the keeper a lifeline of its own.
"""

import os
import time

LOOK_S = 15.0
"""Seconds between two looks at the clock and at the host's memory."""

AVAILABLE = "MemAvailable:"
"""The line of /proc/meminfo that is read (proc_meminfo(5))."""


class OwnerWait:
    """The wait for an owner: its greatest length, and the leash that it holds."""

    def __init__(self, leash_end: int, place: str, seconds: float | None, memory: int) -> None:
        """``leash_end``: the owner's end of the leash, which this object closes. ``place``: the
        sandbox's directory. ``seconds``: how long it waits at most; None for no limit. ``memory``:
        the bytes that the host must have available meanwhile."""
        self.leash_end = leash_end
        self.place = place
        self.until = None if seconds is None else now() + seconds
        self.memory = memory
        self.look_at = time.monotonic()
        """The monotonic time of the next look; the first one is due at once."""

    def is_over(self) -> bool:
        """Whether it has waited long enough, its directory is gone (perhaps with a temporary one
        around it), or the host is short of memory. Plans the next look."""
        rest = LOOK_S if self.until is None else min(LOOK_S, max(0.0, self.until - now()))
        self.look_at = time.monotonic() + rest
        if self.until is not None and now() >= self.until:
            return True
        if not os.path.exists(self.place):
            return True
        available = available_memory()
        return available is not None and available < self.memory

    def end(self) -> None:
        """Close the end of the leash. Called once, when another process has it, or when QEMU must
        end."""
        os.close(self.leash_end)


def now() -> float:
    """Return the seconds of a clock that, if possible, goes on while the host is suspended."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def available_memory() -> int | None:
    """The bytes of memory available on the host; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith(AVAILABLE):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None
