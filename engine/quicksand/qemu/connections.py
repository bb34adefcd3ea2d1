"""Ends connections of a running QEMU from outside. Linux only.

QEMU has no command that ends a client of one of its sockets, or what goes through a forwarded port.
But whoever has a duplicate of a connection can shut it down (shutdown(2)): both ends then read an
end of file. QEMU closes it, and takes the next client.

While the VM is paused QEMU does that too, but does not tell the guest, and forgets to do so later:
it has no handlers for a serial port then (hw/char/virtio-console.c, virtconsole_enable_backend). So
the guest goes on with what such a client had begun, also after a state was loaded. Where clients
of the agent are ended in a pause, somebody therefore connects to their ports, and leaves, once it
runs again.

Each of QEMU's sockets says itself what it is. The lists in /proc/net have those of the whole host,
which takes long where it has many, and write paths so that a line feed in one is a new line.
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
    """Why connections of the QEMU ``pid`` cannot be ended; "" if they can. Ends none."""
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

    A connection keeps the path that its listener was bound to, whatever has become of that file.
    What waits there until QEMU takes it is not ended.

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
    """Tells which of the ``names`` the socket has in the directory of a machine; "" if none."""
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
    """Returns False if it has ended by itself."""
    try:
        found.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False
    return True


def _connections(pid: int) -> Iterator[socket.socket]:
    """Those of its `_sockets` that are streams, but listen for none: a listener that is shut down
    would hear nothing any more."""
    for found in _sockets(pid):
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if found.type == socket.SOCK_STREAM and not listens:
            yield found


def _sockets(pid: int) -> Generator[socket.socket]:
    """Duplicates of that process's sockets, one at a time. Raises QemuDiedError, MachineError."""
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
        _require_life(pidfd)
    except OSError as error:
        raise _refused(pid, error) from error
    finally:
        os.close(pidfd)


def _require_life(pidfd: int) -> None:
    """Raise OSError if the process has ended, which has no open files then."""
    end = select.poll()
    end.register(pidfd, select.POLLIN)
    if end.poll(0):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))


def _refused(pid: int, error: OSError) -> MachineError:
    if error.errno in (errno.ESRCH, errno.ENOENT, errno.EINVAL):
        return QemuDiedError(f"QEMU (process {pid}) has ended")
    return MachineError(f"QEMU's connections cannot be ended: {error.strerror}")
