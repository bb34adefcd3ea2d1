"""How many connections to a forwarded port may wait until QEMU takes them.

QEMU's network listens with room for one (libslirp, src/socket.c: `listen(s, 1)`). It takes one in
each turn of its loop, and the kernel drops others meanwhile: of a burst, many get neither data nor
a reset. Whoever has the socket can change the queue's length at any time (listen(2)).
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection

from quicksand.base.processes import PROC, borrow

ROOM = 1024
"""Connections; the kernel's own limit is 4096 (net.core.somaxconn, listen(2))."""

LISTENS = "0A"
"""The state TCP_LISTEN in /proc/net/tcp (proc_pid_net(5))."""


def widen_backlogs(pid: int, ports: Collection[int]) -> int:
    """Let ROOM connections wait at each of these ``ports``, at which the QEMU ``pid`` listens.
    Returns the number of ports where that worked: where the system has no such call, or refuses it,
    the queues stay as they are."""
    if not ports or not PROC.joinpath("self").exists() or not hasattr(os, "pidfd_open"):
        return 0
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return 0
    try:
        return sum(_widen(pidfd, number) for number in _listening(pid, ports))
    finally:
        os.close(pidfd)


def _listening(pid: int, ports: Collection[int]) -> list[int]:
    """Return the descriptors of ``pid`` that listen at these ports."""
    wanted, found = {f":{port:04X}" for port in ports}, []
    place = PROC / str(pid)
    with contextlib.suppress(OSError):
        rows = [line.split() for line in (place / "net" / "tcp").read_text("ascii").splitlines()]
        sockets = {
            f"socket:[{row[9]}]" for row in rows if row[1][-5:] in wanted and row[3] == LISTENS
        }
        for entry in (place / "fd").iterdir():
            with contextlib.suppress(OSError):  # closed meanwhile
                if str(entry.readlink()) in sockets:
                    found.append(int(entry.name))
    return found


def _widen(pidfd: int, number: int) -> bool:
    with (
        contextlib.suppress(OSError),
        socket.socket(fileno=borrow(pidfd, number)) as listener,
    ):
        listener.listen(ROOM)
        return True
    return False
