"""What files take on the disk, each counted once however many names it has."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BLOCK = 512
"""Bytes of a unit of ``st_blocks``, on every system that we know."""


@dataclass(slots=True)
class _File:
    allocated: int
    links: int
    seen: int = 0
    """Of its links, how many we have come across."""


class Footprint:
    """Files and directories under some roots. Links are not followed; what cannot be looked at, or
    goes meanwhile, takes nothing. Blocks that copies share (reflinks) count with each copy."""

    def __init__(self, *roots: Path) -> None:
        self._files: dict[tuple[int, int], _File] = {}
        self._directories: dict[tuple[int, int], int] = {}
        for root in roots:
            self.add(root)

    @classmethod
    def together(cls, parts: Iterable[Footprint]) -> Footprint:
        """Several ones, of different roots, as one."""
        whole = cls()
        for part in parts:
            whole._directories |= part._directories
            for key, file in part._files.items():
                mine = whole._files.setdefault(key, _File(file.allocated, file.links))
                mine.seen += file.seen
        return whole

    def add(self, root: Path) -> None:
        """Count a file or a directory and all below it, unless it has been counted."""
        pending = [os.fspath(root)]
        while pending:
            path = pending.pop()
            with contextlib.suppress(OSError):
                if self._count(os.lstat(path)):
                    with os.scandir(path) as entries:
                        pending += [entry.path for entry in entries]

    def _count(self, found: os.stat_result) -> bool:
        """Whether it is a directory, and new."""
        key, allocated = (found.st_dev, found.st_ino), found.st_blocks * BLOCK
        if stat.S_ISDIR(found.st_mode):
            is_new = key not in self._directories
            self._directories[key] = allocated
            return is_new
        self._files.setdefault(key, _File(allocated, found.st_nlink)).seen += 1
        return False

    @property
    def size(self) -> int:
        """Bytes that all of it has allocated."""
        return sum(self._directories.values()) + sum(f.allocated for f in self._files.values())

    @property
    def own(self) -> int:
        """Bytes that would be free if it were deleted: of files that have no link elsewhere."""
        return self.size - self.shared

    @property
    def shared(self) -> int:
        """Bytes of files that have links elsewhere too."""
        return sum(allocated for allocated, _, _ in self.shared_files.values())

    @property
    def shared_files(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Files that have links elsewhere too, by device and inode: bytes allocated, links, and how
        many of these are here."""
        return {
            key: (file.allocated, file.links, file.seen)
            for key, file in self._files.items()
            if file.seen < file.links
        }
