"""The owner as a process: QEMU ends with it even if others hold its end of the lifeline and of the
leash, as a child does that a C library has forked."""

import os
import socket
import struct
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
