"""Sums the disk space of files, counting each once however many names it has."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

BLOCK = 512
"""Bytes of one unit of ``st_blocks`` on Linux and macOS (stat(2))."""


@dataclass(slots=True)
class _File:
    allocated: int
    links: int
    seen: int = 0
    """The number of its links that were found."""


class Footprint:
    """The files and directories below some roots. Symbolic links are not followed; files that
    cannot be read, or vanish meanwhile, count nothing. Blocks shared by reflinks count in each
    copy."""

    def __init__(self, *roots: Path) -> None:
        self._files: dict[tuple[int, int], _File] = {}
        self._directories: dict[tuple[int, int], int] = {}
        for root in roots:
            self.add(root)

    @classmethod
    def together(cls, parts: Iterable[Footprint]) -> Footprint:
        """Combine several footprints of different roots."""
        whole = cls()
        for part in parts:
            whole._directories |= part._directories
            for key, file in part._files.items():
                mine = whole._files.setdefault(key, _File(file.allocated, file.links))
                mine.seen += file.seen
        return whole

    def add(self, root: Path) -> None:
        """Count a file, or a directory with all below it, unless it was counted before."""
        pending = [os.fspath(root)]
        while pending:
            path = pending.pop()
            with contextlib.suppress(OSError):
                if self._count(os.lstat(path)):
                    with os.scandir(path) as entries:
                        pending += [entry.path for entry in entries]

    def _count(self, found: os.stat_result) -> bool:
        """Count one entry; return whether it is a directory that was not counted before."""
        key, allocated = (found.st_dev, found.st_ino), found.st_blocks * BLOCK
        if stat.S_ISDIR(found.st_mode):
            is_new = key not in self._directories
            self._directories[key] = allocated
            return is_new
        self._files.setdefault(key, _File(allocated, found.st_nlink)).seen += 1
        return False

    @property
    def size(self) -> int:
        """Bytes allocated by all files and directories."""
        return sum(self._directories.values()) + sum(f.allocated for f in self._files.values())

    @property
    def own(self) -> int:
        """Bytes that deleting it would free: the bytes of files without links elsewhere."""
        return self.size - self.shared

    @property
    def shared(self) -> int:
        """Bytes of files that also have links elsewhere."""
        return sum(allocated for allocated, _, _ in self.shared_files.values())

    @property
    def shared_files(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Files that also have links elsewhere, by (device, inode): (bytes allocated, links, links
        found here)."""
        return {
            key: (file.allocated, file.links, file.seen)
            for key, file in self._files.items()
            if file.seen < file.links
        }


def allocated_size(path: Path) -> int:
    """Return the bytes that a file, or the files below a directory, occupy on disk (st_blocks, not
    apparent sizes). Missing files count nothing. Raises OSError for an unreadable directory."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        total += allocated_size(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * BLOCK
        except NotADirectoryError:
            total = path.lstat().st_blocks * BLOCK
    return total
