"""How much of the host's disk the guest may still take.

A reserve of bytes and inodes stays free for the host, whatever the guest writes. The disk is looked
at once for many writes, not for each; between two looks a budget is used up.
"""

from __future__ import annotations

import os
from _thread import allocate_lock

from quicksand_smb.reasons import Reason, StoreError, store_error
from quicksand_smb.values import Limits
from quicksand_smb.walk import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_BUDGET = 64 << 20
"""Bytes at most that are written between two looks."""

_BUDGET_NAMES = 64
_COST_OF_NAME = 4096
"""Bytes that a new file is reckoned to take, at least."""


class Room:
    """Of the file system of a share's root; those that are mounted below it are not counted."""

    __slots__ = ("_budget", "_budget_names", "_limits", "_lock", "_root")

    def __init__(self, root: Held, limits: Limits) -> None:
        self._root = root
        self._limits = limits
        self._lock = allocate_lock()
        self._budget = 0
        self._budget_names = 0

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
        with self._lock:
            self._budget -= count
            if self._budget >= 0:
                return
        free = self.spare(self.look())
        with self._lock:
            self._budget = min(max(0, free - count), _BUDGET)
        if free < count and not (is_there and is_there()):
            raise StoreError(Reason.NO_SPACE)

    def need_name(self) -> None:
        """Raises NO_SPACE if one more file would leave the host too few inodes, or too few bytes
        even for its name."""
        self.need(_COST_OF_NAME)
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
            self._budget_names = min(free - 1, _BUDGET_NAMES)
