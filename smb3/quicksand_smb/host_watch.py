"""Watches the host's changes with inotify(7): of files and directories that clients have leased,
and of files that they have open for writing (`host_writes`).

inotify reports writes, and changes of size, times, mode and names. It does not report writes
through a mapping (mmap) before the file is closed, nor changes that another machine makes on a
network file system. So directories on such file systems are not watched.
"""

import os
import select
import struct
import time

from quicksand_smb import kernel
from quicksand_smb.directory_leases import break_all
from quicksand_smb.minimal_stdlib import TYPE_CHECKING, Callable, Final, start_thread
from quicksand_smb.store_errors import StoreError

if TYPE_CHECKING:
    from quicksand_smb.node import Node
    from quicksand_smb.open_file import File

# linux/inotify.h
_MODIFY, _ATTRIB, _CLOSED, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATED, _GONE, _DELETED, _MOVED = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLY_DIRECTORY, _MASK_ADD = 0x01000000, 0x20000000
_OF_FILE: Final = _MODIFY | _ATTRIB | _DELETED | _MOVED
_OF_DIRECTORY: Final = (
    _OF_FILE | _CLOSED | _MOVED_FROM | _MOVED_TO | _CREATED | _GONE | _ONLY_DIRECTORY
)
"""The events of a leased directory and the files in it. A file written through a mapping reports
that when it is closed."""
_OF_WRITTEN: Final = _MODIFY | _CLOSED
"""The events of a file that a client has open for writing."""
_NOTHING: Final = _DELETED
"""A watch needs at least one event. This one comes only after nobody has the file open."""
_OF_PATH: Final = _MOVED | _ONLY_DIRECTORY
"""The events of a directory above a leased one."""
_LOCAL: Final = frozenset({
    0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x794C7630,
})  # fmt: skip
"""File systems that only this system changes (statfs(2)): ext, XFS, Btrfs, tmpfs, F2FS, ZFS,
bcachefs, overlayfs."""
MOST: Final = 2048
"""The most watches of a server. They are shared by all programs of the host's user
(fs.inotify.max_user_watches, 8192 on a small machine)."""
MOST_WRITTEN: Final = 1024
"""The most further watches, for files that are open for writing."""
MOST_LATER: Final = 4096
"""The most delayed calls."""
_TURN_MS: Final = 100
"""The milliseconds between two checks for delayed calls that are due."""
_EVENT: Final = struct.Struct("=iIII")
_BUFFER: Final = 64 << 10


class HostWatch:
    """The watches of a server. All but `_listen` runs under the server's lock."""

    def __init__(
        self, run: Callable[[Callable[[], None]], None], log_error: Callable[[], None]
    ) -> None:
        """`run` calls a function under the lock and then sends all waiting output; threads of this
        watch call it without the lock. `log_error` logs the error that is being handled. Without
        inotify nothing is watched."""
        self._run = run
        self._log_error = log_error
        self._files: dict[int, dict[File, int]] = {}
        """The files that each watch serves, and their events."""
        self._written = 0
        """The number of watches on files that are open for writing."""
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._is_over = False
        try:
            self._descriptor = kernel.inotify()
        except OSError:
            self._descriptor = -1
            return
        start_thread(self._listen)

    def add(self, file: "File", node: "Node") -> bool:
        """Watch an open file. Returns False if there are no more watches."""
        file.unwatch = self._add(file, node, [(b"", _OF_FILE)])
        return file.unwatch is not None

    def add_directory(self, file: "File", node: "Node", depth: int) -> bool:
        """Watch a directory, its files, and the `depth` directories above it. Returns False if
        changes would go unnoticed."""
        above = [(b"/.." * n, _OF_PATH) for n in range(1, depth)]
        file.unwatch = self._add(file, node, [(b"", _OF_DIRECTORY), *above])
        return file.unwatch is not None

    def add_written(self, file: "File", node: "Node") -> "WrittenWatch | None":
        """Watch a file that is open for writing, while there are watches. Returns None where the
        system has no inotify."""
        if self._is_over or self._descriptor < 0:
            return None
        end = None
        if self._written < MOST_WRITTEN:
            end = self._add(file, node, [(b"", _OF_WRITTEN)], beside=MOST_WRITTEN)
        self._written += end is not None
        return WrittenWatch(self, end)

    def end_written(self, end: Callable[[], None]) -> None:
        self._written -= 1
        end()

    def _add(
        self, file: "File", node: "Node", wanted: list[tuple[bytes, int]], beside: int = 0
    ) -> Callable[[], None] | None:
        """Add watches, and return a function that ends them, or None if they cannot be added."""
        try:
            descriptor = node.held.take()
        except StoreError:
            return None
        watches: list[int] = []

        def end() -> None:
            for watch in watches:
                self._remove(watch, file)

        try:
            if self._is_over or self._descriptor < 0:
                return None
            if len(self._files) + len(wanted) > MOST + beside:
                return None
            if wanted[0][1] is _OF_DIRECTORY and kernel.file_system(descriptor) not in _LOCAL:
                return None
            own = kernel.own_path(descriptor)
            for path, mask in wanted:
                watch = kernel.inotify_add(self._descriptor, own + path, mask | _MASK_ADD)
                known = self._files.setdefault(watch, {})
                known[file] = known.get(file, 0) | mask
                watches.append(watch)
        except OSError:
            end()
            return None
        finally:
            node.held.give()
        return end

    def set_written(self, node: "Node", *, is_heard: bool) -> None:
        """Turn the events of a written file on or off."""
        try:
            descriptor = node.held.take()
        except StoreError:
            return
        try:
            path = kernel.own_path(descriptor)
            kernel.inotify_add(self._descriptor, path, _OF_WRITTEN if is_heard else _NOTHING)
        except OSError:
            return  # the size shows the change instead
        finally:
            node.held.give()

    def _remove(self, watch: int, file: "File") -> None:
        files = self._files.get(watch)
        if files and file in files and not self._is_over:
            del files[file]
            if not files:
                del self._files[watch]
                kernel.inotify_remove(self._descriptor, watch)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        """Call a function under the lock after some seconds and send the output. The call is
        dropped if too many wait."""
        if len(self._later) >= MOST_LATER:
            return
        self._later.append((time.monotonic() + seconds, work))
        if len(self._later) == 1:
            try:
                self._wake()
            except OSError:
                return  # no more watches: the next event wakes the thread

    def _wake(self) -> None:
        """Wake the thread by adding and removing a watch. Raises OSError if the thread was awake
        and has closed the descriptor."""
        watch = kernel.inotify_add(self._descriptor, b"/", _DELETED)
        kernel.inotify_remove(self._descriptor, watch)

    def end(self) -> None:
        """End the watches and the thread. A second call does nothing."""
        if self._is_over or self._descriptor < 0:
            self._is_over = True
            return
        self._is_over = True
        self._files.clear()
        self._later.clear()
        try:
            self._wake()
        except OSError:
            return  # it was awake, and has closed the descriptor

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        while not self._is_over:
            poll.poll(_TURN_MS if self._later else None)
            try:
                self._run(self._work)
            except Exception:  # noqa: BLE001 - nobody else listens
                self._log_error()
                time.sleep(_TURN_MS / 1000)  # it may fail each time
        os.close(self._descriptor)

    def _work(self) -> None:
        self.hear()
        now = time.monotonic()
        due = [work for when, work in self._later if when <= now]
        self._later = [one for one in self._later if one[0] > now]
        for work in due:
            self._try(work)

    def _try(self, work: Callable[..., None], *arguments: object) -> None:
        """Call a function. Its failure is logged and does not keep other files from being
        reported."""
        try:
            work(*arguments)
        except Exception:  # noqa: BLE001 - see above
            self._log_error()

    def hear(self) -> None:
        """Process the events that are queued by now. Later ones are left, since they may never
        end."""
        if self._descriptor < 0 or self._is_over:
            return
        left = kernel.unread(self._descriptor)
        while left > 0 and not self._is_over:
            try:
                data = os.read(self._descriptor, _BUFFER)
            except BlockingIOError:
                return
            left -= len(data)
            for file, mask in self._heard(data).items():
                self._try(_tell, file, mask)

    def _heard(self, data: bytes) -> "dict[File, int]":
        """Return the files that wait for these events, and what happened to each."""
        found: dict[File, int] = {}
        while len(data) >= _EVENT.size:
            watch, mask, _, length = _EVENT.unpack_from(data)
            data = data[_EVENT.size + length :]
            if mask & _OVERFLOW:
                for files in self._files.values():
                    found.update(dict.fromkeys(files, _OF_FILE | _OF_WRITTEN))
            elif not mask & _IGNORED:
                for file, wants in self._files.get(watch, {}).items():
                    if wants & mask:
                        found[file] = found.get(file, 0) | mask
        return found


def _tell(file: "File", mask: int) -> None:
    """Break the leases on a changed file, and inform its guard."""
    if mask & _OF_FILE or file.guard is None:
        break_all(file)
    if file.guard is not None and mask & _OF_WRITTEN:
        file.guard.heard(is_closed=not mask & _MODIFY)


class WrittenWatch:
    """The watch of a file that a client has open for writing (`host_writes.Watch`)."""

    __slots__ = ("_end", "_host")

    def __init__(self, host: HostWatch, end: Callable[[], None] | None) -> None:
        self._host = host
        self._end = end

    def hear(self) -> None:
        self._host.hear()

    def mute(self, node: "Node") -> None:
        if self._end:
            self._host.set_written(node, is_heard=False)

    def unmute(self, node: "Node") -> None:
        if self._end:
            self._host.set_written(node, is_heard=True)

    def end(self) -> None:
        if self._end:
            end, self._end = self._end, None
            self._host.end_written(end)

    def later(self, seconds: float, work: Callable[[], None]) -> None:
        self._host.later(seconds, work)

    def now(self) -> float:
        return time.monotonic()
