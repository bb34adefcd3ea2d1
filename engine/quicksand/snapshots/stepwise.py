"""Writing large files in steps, each in the background while the next one is filled: a file of any
size takes a few small buffers.

Where possible the page cache is bypassed (O_DIRECT, open(2)): it would take as much memory as the
file, and its first touch can cost more than the disk.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from quicksand.base.buffers import new_buffer
from quicksand.base.checksum import crc32
from quicksand.base.files import map_os_errors
from quicksand.base.sharing import write_at
from quicksand.records.nodes import File
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import CHUNK, seal
from quicksand.snapshots.verified import Verified

THREAD = "quicksand-write"
"""The name of the thread that writes."""

BUFFERS = 3
"""One buffer that is written, one that is filled, and one between them, since the times of both
vary. Without the third a file of 1 GiB takes a third longer; a fourth gains nothing."""

NOT_DIRECT = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP}
"""Errors of file systems that need the page cache."""


class StepWriter:
    """A new file that is written in steps of at most CHUNK bytes. Fill `buffer`, then call `write`;
    `close` in any case. Raises DiskSpaceError, PathError."""

    def __init__(self, path: Path, *, cached: bool = False) -> None:
        """``cached``: the file will be read soon, so it goes through the page cache."""
        self._path = path
        self._pool = ThreadPoolExecutor(1, THREAD)
        self._pending: deque[Future[None]] = deque()
        self._buffers = [new_buffer(CHUNK) for _ in range(BUFFERS)]
        self._turn = 0
        self._direct: int | None = None
        with map_os_errors(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self.descriptor = os.open(path, flags, 0o600)
            try:
                self._direct = None if cached else _open_direct(path)
            except BaseException:
                self.close()
                path.unlink()
                raise

    @property
    def buffer(self) -> mmap.mmap:
        """CHUNK bytes for the next step; their former contents are undefined."""
        return self._buffers[self._turn]

    def write(self, offset: int, ranges: Sequence[tuple[int, int]], *, last: bool = False) -> None:
        """Begin to write these ranges (start, end) of the buffer at ``offset`` + start; all are
        multiples of a page. Then `buffer` is another one. The ``last`` step is written at once. Its
        error may be that of an earlier step."""
        buffer = self.buffer
        self._turn = (self._turn + 1) % BUFFERS
        if last:
            self._wait(0)
            with map_os_errors(self._path):
                self._write(buffer, offset, ranges)
        else:
            self._pending.append(self._pool.submit(self._write, buffer, offset, ranges))
            self._wait(BUFFERS - 1)

    def _wait(self, most: int) -> None:
        """Wait until at most so many steps are still to be written."""
        with map_os_errors(self._path):
            while len(self._pending) > most:
                self._pending.popleft().result()

    def _write(self, buffer: mmap.mmap, offset: int, ranges: Sequence[tuple[int, int]]) -> None:
        with memoryview(buffer) as whole:
            for start, end in ranges:
                with whole[start:end] as data:
                    self._write_range(data, offset + start)

    def _write_range(self, data: memoryview, offset: int) -> None:
        if self._direct is not None:
            try:
                write_at(self._direct, data, offset)
            except OSError as error:
                if error.errno not in NOT_DIRECT:
                    raise
                os.close(self._direct)
                self._direct = None
            else:
                return
        write_at(self.descriptor, data, offset)

    def seal(self, crcs: Sequence[int], verified: Verified | None) -> File:
        """Sync the file, whose steps have these checksums, and add it to ``verified``."""
        self._wait(0)
        with map_os_errors(self._path):
            seal(self.descriptor)
            size = os.fstat(self.descriptor).st_size
            found = File(name=self._path.name, size=size, crcs=tuple(crcs))
            if verified is not None:
                verified.add(verified.mark(self.descriptor, found))
        return found

    def close(self) -> None:
        """Close the file after the step that is being written. Idempotent."""
        self._pool.shutdown(cancel_futures=True)
        for descriptor in (self.descriptor, self._direct):
            if descriptor is not None and descriptor >= 0:
                os.close(descriptor)
        self.descriptor, self._direct = -1, None
        for buffer in self._buffers:
            # A traceback may hold a view; the memory is freed with that.
            with contextlib.suppress(BufferError):
                buffer.close()


class PagesFile:
    """A new file to which pages are appended without another copy: they are read into the memory
    from which they are written. Raises DiskSpaceError, PathError; call `close` in any case."""

    def __init__(self, path: Path, *, cached: bool = False) -> None:
        """``cached``: as for `StepWriter`."""
        self._steps = StepWriter(path, cached=cached)
        self.pages = 0
        """The number of its pages."""
        self._filled = 0
        """Bytes of the step that is being filled."""
        self._crcs: list[int] = []

    @property
    def room(self) -> int:
        """The number of pages that the present step can still take."""
        return (CHUNK - self._filled) // PAGE

    def free(self) -> memoryview:
        """The memory for that many pages, to be filled before `keep` is called, and released."""
        return memoryview(self._steps.buffer)[self._filled :]

    def keep(self, parts: Iterable[tuple[int, int]]) -> None:
        """Append pages of `free`: (number of the first, how many), ascending."""
        buffer, start = self._steps.buffer, self._filled
        for at, count in parts:
            source, size = start + at * PAGE, count * PAGE
            if source != self._filled:
                buffer.move(self._filled, source, size)
            self._filled += size
            self.pages += count
        if self._filled == CHUNK:
            self._write_step(last=False)

    def _write_step(self, *, last: bool) -> None:
        with memoryview(self._steps.buffer) as whole, whole[: self._filled] as data:
            crc = crc32(data)
        self._steps.write(len(self._crcs) * CHUNK, [(0, self._filled)], last=last)
        self._crcs.append(crc)
        self._filled = 0

    def finish(self, verified: Verified | None) -> File:
        """Sync it, add it to ``verified`` and return its checksums."""
        if self._filled:
            self._write_step(last=True)
        return self._steps.seal(self._crcs, verified)

    def close(self) -> None:
        """Close it. Idempotent."""
        self._steps.close()


def _open_direct(path: Path) -> int | None:
    """Open a file for writing without the page cache; None where that is not possible. Raises
    OSError."""
    if not hasattr(os, "O_DIRECT"):
        return None
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT)
    except OSError as error:
        if error.errno not in NOT_DIRECT:
            raise
        return None
