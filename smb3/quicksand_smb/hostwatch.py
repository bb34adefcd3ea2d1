"""What the host itself changes: inotify(7), for files of which clients keep what they have read.

It tells of writes, and of changes of size, times, mode and names. It does not tell of writes
through a mapping (mmap), nor of what another machine does on a network's file system.
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
_MODIFY, _ATTRIB, _DELETED, _MOVED = 0x2, 0x4, 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_WANTED: Final = _MODIFY | _ATTRIB | _DELETED | _MOVED
_EVENT: Final = struct.Struct("=iIII")
_BUFFER: Final = 64 << 10


class HostWatch:
    """The watches of a server. All but `listen` runs under the lock of the house."""

    def __init__(self, tell: Callable[[list["File"]], None]) -> None:
        """Raises OSError where there is no inotify. `tell` is called without the lock, from a
        thread of its own, with files that have changed."""
        self._descriptor = kernel.inotify()
        self._tell = tell
        self._files: dict[int, list[File]] = {}
        self._is_over = False
        start_thread(self._listen)

    def add(self, file: "File", node: "Node") -> bool:
        """Watch a file, which is open. False: the system has no more watches."""
        try:
            descriptor = node.held.take()
        except StoreError:
            return False
        try:
            if self._is_over:
                return False
            watch = kernel.inotify_add(self._descriptor, kernel.own_path(descriptor), _WANTED)
        except OSError:
            return False
        finally:
            node.held.give()
        files = self._files.setdefault(watch, [])
        if file not in files:
            files.append(file)
        file.unwatch = lambda: self._remove(watch, file)
        return True

    def _remove(self, watch: int, file: "File") -> None:
        files = self._files.get(watch)
        if files and file in files and not self._is_over:
            files.remove(file)
            if not files:
                del self._files[watch]
                kernel.inotify_remove(self._descriptor, watch)

    def end(self) -> None:
        """The thread ends, too. Done twice, it does nothing."""
        if self._is_over:
            return
        self._is_over = True
        self._files.clear()
        # A watch that ends is an event, by which the thread wakes.
        watch = kernel.inotify_add(self._descriptor, b"/", _DELETED)
        kernel.inotify_remove(self._descriptor, watch)

    def _listen(self) -> None:
        while not self._is_over:
            data = os.read(self._descriptor, _BUFFER)
            changed: list[File] = []
            while len(data) >= _EVENT.size:
                watch, mask, _, length = _EVENT.unpack_from(data)
                data = data[_EVENT.size + length :]
                if mask & _OVERFLOW:
                    changed = [file for files in list(self._files.values()) for file in files]
                elif not mask & _IGNORED:
                    changed += self._files.get(watch, ())
            if changed:
                self._tell(changed)
        os.close(self._descriptor)
