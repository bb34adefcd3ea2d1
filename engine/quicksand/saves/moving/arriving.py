"""A file of a save while it arrives."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.errors import BundleError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import open_regular
from quicksand.base.sharing import write_at
from quicksand.saves.bundle.manifest import Member
from quicksand.saves.moving.members import hash_file


class Arriving:
    """A file that arrives in pieces. After an error the received part stays on disk, unless it is
    damaged, and a later transfer continues it. All methods except `close` block."""

    def __init__(self, file: Member, part: Path, offset: int) -> None:
        """Open ``part``, of which ``offset`` bytes have already arrived. Raises BundleError,
        PathError."""
        self._file = file
        self._part = part
        with map_os_errors(part):
            self._descriptor = open_regular(part, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        self._size = os.fstat(self._descriptor).st_size
        if offset != self._size or self._size > file.size:
            self.close()
            raise BundleError(f"{file.name}: {self._size} bytes of it are here, not {offset}")

    def begin(self) -> None:
        """Read the part that has already arrived. Raises PathError."""
        with map_os_errors(self._part):
            self._digest = hash_file(self._descriptor)

    def write(self, data: bytes) -> None:
        """Write the next piece. Raises BundleError if there are too many, DiskSpaceError,
        PathError."""
        if self._size + len(data) > self._file.size:
            raise self._refuse(f"{self._file.name} has more than {self._file.size} bytes")
        with map_os_errors(self._part):
            if data.count(0) == len(data):
                os.ftruncate(self._descriptor, self._size + len(data))  # a hole
            else:
                write_at(self._descriptor, memoryview(data), self._size)
        self._digest.update(data)
        self._size += len(data)

    def finish(self) -> None:
        """Check that the file is whole, and sync it. Raises BundleError, PathError."""
        name = self._file.name
        if self._size != self._file.size:
            raise BundleError(f"{name} is cut off: {self._size} of {self._file.size} bytes came")
        if self._digest.hexdigest() != self._file.sha256:
            raise self._refuse(f"{name} is damaged: it has another digest")
        with map_os_errors(self._part):
            os.fsync(self._descriptor)

    def _refuse(self, why: str) -> BundleError:
        self._part.unlink(missing_ok=True)
        return BundleError(why)

    def close(self) -> None:
        """Close it. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
