"""What the host itself changes: inotify(7), for files and directories of which clients keep what
they have read.

It tells of writes, and of changes of size, times, mode and names. It does not tell of writes
through a mapping (mmap) before the file is closed, nor of what another machine does on a network's
file system: directories there are not watched.
"""

import os
import struct

from quicksand_smb import kernel
from quicksand_smb.light import TYPE_CHECKING, Callable, Final, start_thread
from quicksand_smb.reasons import StoreError

if TYPE_CHECKING:
    from quicksand_smb.node import Node
    from quicksand_smb.shares import File

# linux/inotify.h
_MODIFY, _ATTRIB, _CLOSED, _MOVED_FROM, _MOVED_TO = 0x2, 0x4, 0x8, 0x40, 0x80
_CREATED, _GONE, _DELETED, _MOVED = 0x100, 0x200, 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLY_DIRECTORY, _MASK_ADD = 0x01000000, 0x20000000
_OF_FILE: Final = _MODIFY | _ATTRIB | _DELETED | _MOVED
_OF_DIRECTORY: Final = (
    _OF_FILE | _CLOSED | _MOVED_FROM | _MOVED_TO | _CREATED | _GONE | _ONLY_DIRECTORY
)
"""Events of a directory that is kept, and of the files in it. A file that was written through a
mapping tells of it when it is closed."""
_OF_PATH: Final = _MOVED | _ONLY_DIRECTORY
"""Events of a directory above one that is kept."""
_LOCAL: Final = frozenset({
    0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E, 0x794C7630,
})  # fmt: skip
"""File systems that nobody but this system changes (statfs(2)): ext, XFS, Btrfs, tmpfs, F2FS, ZFS,
bcachefs, overlayfs."""
MOST: Final = 2048
"""Watches of a server at the same time. They are the host's user's (fs.inotify.max_user_watches,
8192 on a small machine), whose other programs need some."""
_EVENT: Final = struct.Struct("=iIII")
_BUFFER: Final = 64 << 10


class HostWatch:
    """The watches of a server. All but `listen` runs under the lock of the house."""

    def __init__(self, tell: Callable[[list["File"]], None]) -> None:
        """Raises OSError where there is no inotify. `tell` is called without the lock, from a
        thread of its own, with files that have changed."""
        self._descriptor = kernel.inotify()
        self._tell = tell
        self._files: dict[int, dict[File, int]] = {}
        """For each watch those who want to hear of it, and of what."""
        self._is_over = False
        start_thread(self._listen)

    def add(self, file: "File", node: "Node") -> bool:
        """Watch a file, which is open. False: there are no more watches."""
        return self._add(file, node, [(b"", _OF_FILE)])

    def add_directory(self, file: "File", node: "Node", depth: int) -> bool:
        """Watch a directory, what is in it, and those above it that are `depth` names of its path.
        False: what changes there would not be told."""
        above = [(b"/.." * n, _OF_PATH) for n in range(1, depth)]
        return self._add(file, node, [(b"", _OF_DIRECTORY), *above])

    def _add(self, file: "File", node: "Node", wanted: list[tuple[bytes, int]]) -> bool:
        try:
            descriptor = node.held.take()
        except StoreError:
            return False
        watches: list[int] = []

        def end() -> None:
            for watch in watches:
                self._remove(watch, file)

        try:
            if self._is_over or len(self._files) + len(wanted) > MOST:
                return False
            if wanted[0][1] is _OF_DIRECTORY and kernel.file_system(descriptor) not in _LOCAL:
                return False
            own = kernel.own_path(descriptor)
            for path, mask in wanted:
                watch = kernel.inotify_add(self._descriptor, own + path, mask | _MASK_ADD)
                known = self._files.setdefault(watch, {})
                known[file] = known.get(file, 0) | mask
                watches.append(watch)
        except OSError:
            end()
            return False
        finally:
            node.held.give()
        file.unwatch = end
        return True

    def _remove(self, watch: int, file: "File") -> None:
        files = self._files.get(watch)
        if files and file in files and not self._is_over:
            del files[file]
            if not files:
                del self._files[watch]
                kernel.inotify_remove(self._descriptor, watch)

    def end(self) -> None:
        """The thread ends, too. Done twice, it does nothing."""
        if self._is_over:
            return
        # A watch that ends is an event, by which the thread wakes.
        watch = kernel.inotify_add(self._descriptor, b"/", _DELETED)
        self._is_over = True
        self._files.clear()
        try:
            kernel.inotify_remove(self._descriptor, watch)
        except OSError:
            return  # it was awake, and has closed the descriptor

    def _listen(self) -> None:
        while not self._is_over:
            data = os.read(self._descriptor, _BUFFER)
            changed: dict[File, None] = {}
            while len(data) >= _EVENT.size:
                watch, mask, _, length = _EVENT.unpack_from(data)
                data = data[_EVENT.size + length :]
                if mask & _OVERFLOW:
                    for files in list(self._files.values()):
                        changed.update(dict.fromkeys(files))
                elif not mask & _IGNORED:
                    wanting = list(self._files.get(watch, {}).items())
                    changed.update((file, None) for file, wants in wanting if wants & mask)
            if changed:
                self._tell(list(changed))
        os.close(self._descriptor)
