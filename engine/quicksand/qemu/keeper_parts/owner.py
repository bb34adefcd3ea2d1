"""The owner as a process: QEMU ends with it even if others hold its end of the lifeline and of the
leash, as a child does that a C library has forked."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable

_CREDENTIALS = struct.Struct("3i")
"""struct ucred (unix(7), SO_PEERCRED): process, user, group."""


class OwnerProcess:
    """The process of the owner, if it is known."""

    def __init__(
        self,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        ended: Callable[[], None],
    ) -> None:
        """``watch`` and ``unwatch`` are the loop's; ``ended`` is called when the process ends."""
        self._watch, self._unwatch, self._ended = watch, unwatch, ended
        self._pidfd: int | None = None

    def follow(self, pidfd: int | None) -> None:
        """Follow that process from now on, or none."""
        if self._pidfd is not None:
            self._unwatch(self._pidfd)
            os.close(self._pidfd)
        self._pidfd = pidfd
        if pidfd is not None:
            self._watch(pidfd, self._ended)


def parent() -> int | None:
    """Return a pidfd of the process that has started this one; None without pidfds (macOS)."""
    return find_process(os.getppid())


def other_end(connection: socket.socket) -> int | None:
    """Return a pidfd of the process that has connected; None where the system does not tell, or if
    it is gone."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return find_process(_CREDENTIALS.unpack(found)[0])


def find_process(pid: int) -> int | None:
    """Return a pidfd of a process; None if it is gone, or on a system without pidfds."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def put_on(leash: int | None, group: int | None) -> None:
    """Put this process, which is about to become a QEMU, on the leash, and into the process group
    ``group`` of the QEMUs that are on it already. Kills it if the owner is gone by now."""
    os.setpgid(0, group or 0)
    if leash is None:
        return
    os.set_inheritable(leash, True)
    if group is not None or not sys.platform.startswith("linux"):
        return
    fcntl.fcntl(leash, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(leash, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) | os.O_ASYNC)
    if _is_let_go(leash):
        os.kill(os.getpid(), signal.SIGKILL)


def is_on(leash: int) -> bool:
    """Whether QEMU is still on the leash."""
    return bool(fcntl.fcntl(leash, fcntl.F_GETFL) & os.O_ASYNC)


def is_pulled(leash: int) -> bool:
    """Whether the owner is gone without having taken QEMU off the leash."""
    return _is_let_go(leash) and is_on(leash)


def _is_let_go(leash: int) -> bool:
    watched = select.poll()
    watched.register(leash, 0)
    return bool(watched.poll(0))


def let_off(leash: int) -> None:
    """Take QEMU off the leash: it outlives its owner from now on."""
    if sys.platform.startswith("linux"):
        fcntl.fcntl(leash, fcntl.F_SETFL, fcntl.fcntl(leash, fcntl.F_GETFL) & ~os.O_ASYNC)


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


LEASE_LOOK_S = 1.0
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
        return time.monotonic() + min(LEASE_LOOK_S, max(0.0, self.until - now()))

    @property
    def is_holding(self) -> bool:
        """Whether QEMU ends with this process."""
        return self._leash_end is not None

    def hold(self, leash_end: int) -> None:
        """Keep the owner's end of the leash as long as this process lives."""
        if self._leash_end is not None:
            os.close(self._leash_end)
        self._leash_end = leash_end
