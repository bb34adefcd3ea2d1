"""How much of the host's disk the guest may still take.

A reserve of bytes and inodes stays free for the host, whatever the guest writes. The disk is looked
at once for many writes, not for each; between two looks a budget is used up. It is reckoned in
blocks, as the disk is, and small: a part of what is spare, and good for a moment only, since other
servers and the host's own programs write to the same disk.
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
"""Bytes at most that are written between two looks."""
_PART = 256
"""A budget is this part of what is spare, or less: many servers may have one at the same time."""
_GOOD_FOR_S = 0.25
"""Seconds after which the disk is looked at anew; as long as a budget is, it counts on what was
seen then."""

_BUDGET_NAMES = 16
BLOCK = 4096
"""Bytes at least that a file takes of a disk at once, and that a new name is reckoned to take."""

_TMPFS = 0x01021994
_REWRITING = frozenset({0xEF53, 0x58465342, _TMPFS, 0xF2F52010})
"""File systems that write a block again where it was, unless it is shared (statfs(2)): ext, XFS,
tmpfs, F2FS. Others (Btrfs, ZFS) take a new one each time, or do not say."""


class DiskReserve:
    """Of the file system of a share's root; those that are mounted below it are not counted."""

    __slots__ = ("_budget", "_budget_names", "_limits", "_lock", "_looked", "_root")

    def __init__(self, root: SharedDescriptor, limits: Limits) -> None:
        self._root = root
        self._limits = limits
        self._lock = allocate_lock()
        self._budget = 0
        self._budget_names = 0
        self._looked = 0.0

    def look(self) -> os.statvfs_result:
        """As the host sees it. Raises StoreError."""
        root = self._root.take()
        try:
            return os.fstatvfs(root)
        except OSError as error:
            raise store_error(error) from error
        finally:
            self._root.give()

    def spare(self, found: os.statvfs_result) -> int:
        """Free bytes less what is kept for the host, which of a small disk is a twentieth."""
        kept = min(self._limits.reserve, found.f_blocks * found.f_frsize // 20)
        return found.f_bavail * found.f_frsize - kept

    def need(self, count: int, is_there: Callable[[], bool] | None = None) -> None:
        """Raises NO_SPACE if `count` bytes more would leave the host less than the reserve, unless
        `is_there` says that the file has its blocks already."""
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
        """As `need`, for a range of an open file, in whole blocks: a byte in a hole takes one."""
        first, last = offset // BLOCK, -(-(offset + count) // BLOCK)
        self.need((last - first) * BLOCK, lambda: is_allocated(descriptor, offset, count))

    def need_name(self) -> None:
        """Raises NO_SPACE if one more file would leave the host too few inodes, or too few bytes
        even for its name."""
        self.need(BLOCK)
        with self._lock:
            self._budget_names -= 1
            if self._budget_names >= 0:
                return
        found = self.look()
        kept = min(self._limits.reserve_names, found.f_files // 20)
        # Some file systems make inodes as they need them, and count none.
        free = found.f_favail - kept if found.f_files else _BUDGET_NAMES
        if free < 1:
            raise StoreError(Reason.NO_SPACE)
        with self._lock:
            self._budget_names = min((free - 1) // _PART, _BUDGET_NAMES)


def is_allocated(descriptor: int, offset: int, count: int) -> bool:
    """Whether bytes of a file are written where blocks of its own are already. Where the file
    system does not tell, they are not."""
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
    """Whether a range has no hole, as tmpfs tells (lseek(2))."""
    return (
        os.lseek(descriptor, offset, os.SEEK_DATA) == offset
        and os.lseek(descriptor, offset, os.SEEK_HOLE) >= offset + count
    )
