"""Which files were found whole since the host booted: a gigabyte takes 0.4 s to check.

A file is known by device, inode, size, time of modification and the checksums that it was compared
with; whoever writes to it changes one of these. What changes without anybody writing, rot on the
disk, is found by the first look after a boot and not by later ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from pathlib import Path

from quicksand.host.boot import boot_id
from quicksand.host.paths import paths
from quicksand.snapshots.records import File

ENTRIES_MAX = 4096
"""Files that are remembered; all are forgotten when there are more."""


class Verified:
    """A directory with one empty file for each that was found whole: making one is atomic, whoever
    else does. That it is missing or cannot be written only costs time."""

    def __init__(self, root: Path, boot: str) -> None:
        """``root`` belongs to this alone; what is in it of another ``boot`` is removed."""
        self._root = root
        self._directory = root / boot

    @classmethod
    def of_user(cls) -> Verified:
        """In the user's cache."""
        return cls(paths().cache / "verified", boot_id())

    def mark(self, descriptor: int, file: File) -> Path:
        """What stands for "the open file, as it is now, is ``file``"."""
        found = os.fstat(descriptor)
        crc = zlib.crc32(b"".join(crc.to_bytes(4, "little") for crc in file.crcs))
        name = f"{found.st_dev:x}-{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}-{crc:x}"
        return self._directory / name

    def has(self, mark: Path) -> bool:
        return mark.exists()

    def add(self, mark: Path) -> None:
        """The mark was taken before the file's bytes were compared, or when we had written them."""
        with contextlib.suppress(OSError):
            self._make_room()
            mark.touch(mode=0o600)

    def _make_room(self) -> None:
        if self._directory.is_dir() and len(list(self._directory.iterdir())) < ENTRIES_MAX:
            return
        shutil.rmtree(self._root, ignore_errors=True)
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
