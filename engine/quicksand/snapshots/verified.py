"""A record of the files whose checksums were compared since the host booted, so that they need not
be compared again: a gigabyte takes 0.4 s.

A file is identified by device, inode, size, modification time and checksums; writing to it changes
one of these. Damage that happens without a write (a failing disk) is found by the first comparison
after a boot, not by later ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from pathlib import Path

from quicksand.base.errors import HostError
from quicksand.base.listing import ANY_ID, own_directories, own_files
from quicksand.base.paths import make_private_dir, paths
from quicksand.base.processes import boot_id
from quicksand.base.removal import make_marked, remove
from quicksand.records.nodes import File

ENTRIES_MAX = 4096
"""The most files that are recorded; when more are found, all records are dropped."""

COUNTED_EVERY = 64
"""One in so many new marks causes a count: each file of each checkpoint gets a mark, and counting
thousands takes milliseconds."""

NAMES = re.compile(r"[0-9a-f]+(?:-[0-9a-f]+){4}")

LAYOUT = "2"
"""A part of the directory's name. Directories of earlier versions can have lost their proof that
they are ours (`removal`), and can then never be emptied."""


class Verified:
    """A directory with one empty file, a mark, for each file that was compared. Creating a mark is
    atomic, and a mark that is missing or cannot be written costs only time."""

    def __init__(self, root: Path, boot: str) -> None:
        """``boot`` identifies the host's boot; marks of other boots in ``root`` are removed."""
        self._root = root
        self._directory = root / hashlib.sha256(f"{LAYOUT} {boot}".encode()).hexdigest()[:16]

    @classmethod
    def of_user(cls) -> Verified:
        """The record in the user's cache directory."""
        return cls(paths().cache / "verified", boot_id())

    def mark(self, descriptor: int, file: File) -> Path:
        """The mark of the open file as it is now, with the checksums of ``file``."""
        return self._mark(os.fstat(descriptor), file)

    def knows(self, path: Path, file: File) -> bool:
        """Whether the file ``path`` was found, as it is now, to be ``file``. Raises OSError."""
        found = path.stat()
        return found.st_size == file.size and self.has(self._mark(found, file))

    def _mark(self, found: os.stat_result, file: File) -> Path:
        crc = zlib.crc32(b"".join(crc.to_bytes(4, "little") for crc in file.crcs))
        name = f"{found.st_dev:x}-{found.st_ino:x}-{found.st_size:x}-{found.st_mtime_ns:x}-{crc:x}"
        return self._directory / name

    def has(self, mark: Path) -> bool:
        return mark.exists()

    def add(self, mark: Path) -> None:
        """Create a mark. It must have been made before the comparison, or after this process wrote
        the file: then it does not match later changes."""
        with contextlib.suppress(OSError, HostError):  # without a mark the file is compared again
            try:
                mark.touch(mode=0o600)
            except FileNotFoundError:
                self._begin()
                mark.touch(mode=0o600)
            if zlib.crc32(mark.name.encode()) % COUNTED_EVERY == 0:
                self._bound()

    def _begin(self) -> None:
        """Make the directory, and remove those of other boots."""
        for other in own_directories(make_private_dir(self._root), ANY_ID):
            if other != self._directory:
                with contextlib.suppress(OSError):
                    remove(other)
        with contextlib.suppress(FileExistsError):
            make_marked(self._directory)

    def _bound(self) -> None:
        """Drop all marks if there are too many. The directory stays, since others write to it."""
        names = os.listdir(self._directory)  # noqa: PTH208 - paths of thousands take long
        if len(names) > ENTRIES_MAX:
            for path in own_files(self._directory, NAMES):
                path.unlink(missing_ok=True)
