"""Ends connections of a running QEMU from outside. Linux only.

QEMU has no command that ends a client of one of its sockets, or a connection through a forwarded
port. But any process that has a duplicate of a connection can shut it down (shutdown(2)): both ends
then read an end of file. QEMU closes it, and takes the next client.

While the VM is paused QEMU does that too, but does not tell the guest, and forgets to do so later:
it has no handlers for a serial port then (hw/char/virtio-console.c, virtconsole_enable_backend). So
the guest goes on with the client's request, even after a state was loaded. Where clients of the
agent are ended in a pause, we therefore connect to their ports, and leave, once the guest runs
again.

Each of QEMU's sockets is asked for its own kind. The lists in /proc/net cover the whole host, so
reading them may take long, and a line feed in a path is a new line in them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
from collections.abc import Callable, Collection, Generator, Iterator
from pathlib import Path

from quicksand.base.borrowing import borrow
from quicksand.base.errors import MachineError, QemuDiedError
from quicksand.base.processes import PROC


def why_not(pid: int) -> str:
    """The reason why connections of the QEMU ``pid`` cannot be ended; "" if they can. Ends none."""
    try:
        with contextlib.closing(_sockets(pid)) as found:
            next(found, None)
    except MachineError as error:
        return str(error)
    return ""


def end_streams(pid: int, runtime_root: Path, names: Collection[str]) -> list[str]:
    """End the connections that the QEMU ``pid`` has accepted at its Unix sockets of these ``names``
    in the directory of any machine of ``runtime_root`` (RuntimeDir); returns the name of the socket
    of each, ascending. It goes on listening there.

    A connection keeps its listener's path, whatever has become of that file. Connections that QEMU
    has not accepted yet are not ended.

    Raises QemuDiedError if it has ended, MachineError if the kernel refuses.
    """
    name_of = _names(runtime_root, names)
    ended = []
    for found in _connections(pid):
        if name := name_of(found):
            _shut_down(found)
            ended.append(name)
    return sorted(ended)


def end_forwarded(pid: int, *, keep: Collection[int]) -> int:
    """End the TCP connections of the QEMU ``pid``: those made to its forwarded ports, and those
    that its network (libslirp) has made for the guest; returns how many there were. Those at a port
    of its own that is in ``keep`` stay. It goes on listening.

    Raises QemuDiedError if it has ended, MachineError if the kernel refuses.
    """

    def is_meant(found: socket.socket) -> bool:
        is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
        return is_tcp and found.getsockname()[1] not in keep

    meant = filter(is_meant, _connections(pid))
    return sum(map(_shut_down, meant))


def _names(runtime_root: Path, names: Collection[str]) -> Callable[[socket.socket], str]:
    """Return a function that tells which of ``names`` a socket has in a machine's directory."""
    is_root = _Same(runtime_root)

    def name_of(found: socket.socket) -> str:
        if found.family != socket.AF_UNIX:
            return ""
        address = found.getsockname()
        if not isinstance(address, str):  # bytes: an abstract name
            return ""
        place = Path(address)
        return place.name if place.name in names and is_root(place.parent.parent) else ""

    return name_of


class _Same:
    """Tells whether a path, which may contain links, leads to the given directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = {directory: True}

    def __call__(self, path: Path) -> bool:
        if path not in self._known:
            self._known[path] = False
            with contextlib.suppress(OSError):
                self._known[path] = path.samefile(self._directory)
        return self._known[path]


def _shut_down(found: socket.socket) -> bool:
    """Shut a connection down. Returns False if it has ended by itself."""
    try:
        found.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True


def _connections(pid: int) -> Iterator[socket.socket]:
    """Yield the `_sockets` that are streams and do not listen: a listener that is shut down would
    accept nothing any more."""
    for found in _sockets(pid):
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if found.type == socket.SOCK_STREAM and not listens:
            yield found


def _sockets(pid: int) -> Generator[socket.socket]:
    """Yield duplicates of its sockets, one at a time. Raises QemuDiedError, MachineError."""
    if not hasattr(os, "pidfd_open"):
        raise MachineError("QEMU's connections can be ended on Linux only")
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        raise _refused(pid, error) from error
    try:
        for path in (PROC / str(pid) / "fd").iterdir():
            try:
                if not str(path.readlink()).startswith("socket:"):
                    continue
                duplicate = borrow(pidfd, int(path.name))
            except OSError as error:
                if error.errno in (errno.ENOENT, errno.EBADF):  # closed meanwhile
                    continue
                raise
            with socket.socket(fileno=duplicate) as found:
                yield found
        if _has_ended(pidfd):  # then it has no open files
            raise QemuDiedError(_ended(pid))
    except OSError as error:
        # Until it is waited for, its open files belong to root: another user may not look at them.
        if _has_ended(pidfd):
            raise QemuDiedError(_ended(pid)) from error
        raise _refused(pid, error) from error
    finally:
        os.close(pidfd)


def _has_ended(pidfd: int) -> bool:
    """Whether the process has ended, waited for or not (pidfd_open(2))."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    return bool(end.poll(0))


def _ended(pid: int) -> str:
    return f"QEMU (process {pid}) has ended"


def _refused(pid: int, error: OSError) -> MachineError:
    if error.errno in (errno.ESRCH, errno.ENOENT, errno.EINVAL):
        return QemuDiedError(_ended(pid))
    return MachineError(f"QEMU's connections cannot be ended: {error.strerror}")
