"""The part of the host's disk that the guest may still take.

A reserve of bytes and inodes stays free for the host. The server looks at the disk once for many
writes: between two looks it uses up a budget. The budget counts blocks, as the disk does. It is a
small part of the spare space and expires soon, since other servers and programs of the host write
to the same disk.
"""

from __future__ import annotations

import os
import time
from _thread import allocate_lock

from quicksand_smb import kernel
from quicksand_smb.store_errors import Reason, StoreError, store_error
from quicksand_smb.store_types import Limits
from quicksand_smb.walk import SharedDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BUDGET = 64 << 20
"""The most bytes that are written between two looks at the disk."""
_PART = 256
"""A budget is at most this fraction of the spare space, since many servers may have one at a
time."""
_GOOD_FOR_S = 0.25
"""The seconds for which a look at the disk is valid."""

_BUDGET_NAMES = 16
BLOCK = 4096
"""The least bytes that a file takes of a disk, and the assumed cost of a new name."""

_TMPFS = 0x01021994
_REWRITING = frozenset({0xEF53, 0x58465342, _TMPFS, 0xF2F52010})
"""File systems that overwrite a block in place unless it is shared (statfs(2)): ext, XFS, tmpfs,
F2FS. Others (Btrfs, ZFS) allocate a new block each time, or do not tell."""


class DiskReserve:
    """The reserve on the file system of a share's root. File systems mounted below the root are not
    counted."""

    __slots__ = ("_budget", "_budget_names", "_limits", "_lock", "_looked", "_root")

    def __init__(self, root: SharedDescriptor, limits: Limits) -> None:
        self._root = root
        self._limits = limits
        self._lock = allocate_lock()
        self._budget = 0
        self._budget_names = 0
        self._looked = 0.0

    def look(self) -> os.statvfs_result:
        """Return the state of the file system as the host sees it. Raises StoreError."""
        root = self._root.take()
        try:
            return os.fstatvfs(root)
        except OSError as error:
            raise store_error(error) from error
        finally:
            self._root.give()

    def spare(self, found: os.statvfs_result) -> int:
        """Return the free bytes less the host's reserve, which is a twentieth of a small disk."""
        kept = min(self._limits.reserve, found.f_blocks * found.f_frsize // 20)
        return found.f_bavail * found.f_frsize - kept

    def need(self, count: int, is_there: Callable[[], bool] | None = None) -> None:
        """Raise NO_SPACE if `count` more bytes would cut into the reserve, unless `is_there` says
        that the file already has the blocks."""
        now = time.monotonic()
        with self._lock:
            if now - self._looked < _GOOD_FOR_S:
                self._budget -= count
                if self._budget >= 0:
                    return
        free = self.spare(self.look())
        with self._lock:
            self._looked = now
            self._budget_names = 0
            self._budget = min(max(0, free - count) // _PART, _BUDGET)
        if free < count and not (is_there and is_there()):
            raise StoreError(Reason.NO_SPACE)

    def need_range(self, descriptor: int, offset: int, count: int) -> None:
        """As `need`, for a range of an open file in whole blocks. A byte in a hole takes a
        block."""
        first, last = offset // BLOCK, -(-(offset + count) // BLOCK)
        self.need((last - first) * BLOCK, lambda: is_allocated(descriptor, offset, count))

    def need_name(self) -> None:
        """Raise NO_SPACE if another file would leave the host too few inodes, or too few bytes for
        its name."""
        self.need(BLOCK)
        with self._lock:
            self._budget_names -= 1
            if self._budget_names >= 0:
                return
        found = self.look()
        kept = min(self._limits.reserve_names, found.f_files // 20)
        # Some file systems make inodes on demand and count none.
        free = found.f_favail - kept if found.f_files else _BUDGET_NAMES
        if free < 1:
            raise StoreError(Reason.NO_SPACE)
        with self._lock:
            self._budget_names = min((free - 1) // _PART, _BUDGET_NAMES)


def is_allocated(descriptor: int, offset: int, count: int) -> bool:
    """Tell whether a write goes to blocks that the file already owns. False if the file system does
    not tell."""
    try:
        kind = kernel.file_system(descriptor)
        if kind not in _REWRITING or offset + count > os.fstat(descriptor).st_size:
            return False
        if kind == _TMPFS:
            return _is_data(descriptor, offset, count)
        return kernel.has_blocks(descriptor, offset, count)
    except OSError:
        return False


def _is_data(descriptor: int, offset: int, count: int) -> bool:
    """Tell whether a range of a tmpfs file has no hole (lseek(2))."""
    return (
        os.lseek(descriptor, offset, os.SEEK_DATA) == offset
        and os.lseek(descriptor, offset, os.SEEK_HOLE) >= offset + count
    )
