"""Pages of guest memory on disk.

A checkpoint's memory is an image (a file of the memory's size, image.py) and the pages that differ
from it, which are stored in files without gaps. Checkpoints share these files; each has an index of
its own that says where every page is.

Format of an index, little-endian: magic ``QSPG``, version u32, memory size in bytes u64, number of
runs u64; then the runs, ascending: first page u64, pages u32, file u32, first page in that file
u64, where file 0xFFFFFFFF means zeros; then a CRC-32 of everything before it, u32.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mmap
import os
import struct
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.buffers import fetch
from quicksand.base.checksum import crc32
from quicksand.base.errors import HistoryError
from quicksand.base.files import data_extents, map_os_errors
from quicksand.base.regular import create, open_file
from quicksand.records.nodes import File
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.verified import Verified

CHUNK = 4 * 1024 * 1024
"""Bytes of a file for each CRC-32."""

ZEROS = 0xFFFFFFFF
VERSION = 1
INDEX_MAX = 256 * 1024 * 1024

_HEADER = struct.Struct("<4sIQQ")
_RUN = struct.Struct("<QIIQ")
_PAGES_MAX = 2**32 - 1


@dataclass(slots=True)
class PageRun:
    """Pages that are consecutive both in the guest's memory and in a file. Never changed; it is not
    frozen because to make one would take twice as long, and a checkpoint makes thousands."""

    first: int
    count: int
    file: int
    """Number of the file, or ZEROS."""
    at: int
    """Number of the first of these pages within the file."""

    @property
    def end(self) -> int:
        return self.first + self.count

    def part(self, first: int, end: int) -> PageRun:
        """The part from page ``first`` up to, but not including, ``end``."""
        at = self.at if self.file == ZEROS else self.at + first - self.first
        return PageRun(first, end - first, self.file, at)


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The places of the pages of a checkpoint's memory. Runs are ascending and never overlap."""

    size: int
    """Bytes of the memory."""
    runs: tuple[PageRun, ...]

    def encode(self) -> bytes:
        """Encode the index. Raises HistoryError if pages overlap or lie outside of the memory: such
        an index could not be read, so it must not be written."""
        end = 0
        for run in self.runs:
            if run.first < end or not run.count:
                raise HistoryError(f"page {run.first} of the memory was listed twice")
            end = run.first + run.count
        if end > self.size // PAGE:
            raise HistoryError(f"page {end - 1} lies outside of the memory")
        parts = [_HEADER.pack(b"QSPG", VERSION, self.size, len(self.runs))]
        parts += [_RUN.pack(run.first, run.count, run.file, run.at) for run in self.runs]
        data = b"".join(parts)
        return data + struct.pack("<I", zlib.crc32(data))

    @classmethod
    def decode(cls, data: bytes, *, files: Sequence[int]) -> PageIndex:
        """Decode an index. ``files``: each file's pages. Raises ValueError if it is damaged."""
        size, runs = _read_index(data, files)
        return cls(size, tuple(PageRun(*run) for run in runs))


def check_index(data: bytes, *, files: Sequence[int]) -> int:
    """Check an index like `PageIndex.decode`, but without its objects, which take ten times as much
    memory. Returns the size of the guest's memory in bytes. Raises ValueError."""
    size, runs = _read_index(data, files)
    for _ in runs:
        pass
    return size


def _read_index(
    data: bytes, files: Sequence[int]
) -> tuple[int, Iterator[tuple[int, int, int, int]]]:
    """The memory's size in bytes and the runs, each checked when it is taken. Raises ValueError."""
    if len(data) < _HEADER.size + 4:
        raise ValueError("it is too short")
    body = memoryview(data)[:-4]
    if zlib.crc32(body) != struct.unpack("<I", data[-4:])[0]:
        raise ValueError("its checksum is wrong")
    magic, version, size, count = _HEADER.unpack_from(body)
    if (magic, version) != (b"QSPG", VERSION):
        raise ValueError("it is no index of this version")
    if len(data) != _HEADER.size + count * _RUN.size + 4:
        raise ValueError("its length is wrong")
    return size, _check_runs(_RUN.iter_unpack(body[_HEADER.size :]), size // PAGE, files)


def _check_runs(
    runs: Iterable[tuple[int, int, int, int]], pages: int, files: Sequence[int]
) -> Iterator[tuple[int, int, int, int]]:
    """Yield ``runs``, checking that each lies within the memory's ``pages`` and its file. Raises
    ValueError."""
    end = 0
    for run in runs:
        first, count, file, at = run
        if first < end or not count or first + count > pages:
            raise ValueError("its pages overlap or lie outside of the memory")
        end = first + count
        if file != ZEROS and (file >= len(files) or at + count > files[file]):
            raise ValueError("it names pages that no file has")
        yield run


def overlay_runs(over: Sequence[PageRun], under: Sequence[PageRun]) -> list[PageRun]:
    """Runs with the pages of ``over``, and those of ``under`` where ``over`` has none.
    Ascending."""
    result: list[PageRun] = []
    rest = iter(under)
    below = next(rest, None)
    for run in over:
        while below is not None and below.first < run.first:
            if below.end <= run.first:
                result.append(below)
                below = next(rest, None)
            else:
                result.append(below.part(below.first, run.first))
                below = below.part(run.first, below.end)
        while below is not None and below.first < run.end:
            below = below.part(run.end, below.end) if below.end > run.end else next(rest, None)
        result.append(run)
    if below is not None:
        result.append(below)
    result.extend(rest)
    return merge_runs(result)


def merge_runs(runs: Sequence[PageRun]) -> list[PageRun]:
    """The same pages in as few runs as possible."""
    result: list[PageRun] = []
    for run in runs:
        last = result[-1] if result else None
        if (
            last is not None
            and last.end == run.first
            and last.file == run.file
            and (run.file == ZEROS or last.at + last.count == run.at)
            and last.count + run.count <= _PAGES_MAX
        ):
            result[-1] = PageRun(last.first, last.count + run.count, last.file, last.at)
        else:
            result.append(run)
    return result


class RunMap:
    """Finds which of many ascending runs lie in a range of pages."""

    def __init__(self, runs: Sequence[PageRun]) -> None:
        self._runs = runs
        self._ends = [run.end for run in runs]

    def within(self, first: int, end: int) -> Iterator[PageRun]:
        """The runs and parts of runs from page ``first`` up to, but not including, ``end``."""
        for number in range(bisect_right(self._ends, first), len(self._runs)):
            run = self._runs[number]
            if run.first >= end:
                return
            inside = run.first >= first and run.end <= end
            yield run if inside else run.part(max(run.first, first), min(run.end, end))


def write_file(
    path: Path, pieces: Iterator[memoryview | bytes], verified: Verified | None = None
) -> File:
    """Write and sync a new file, add it to ``verified`` and return its checksums.

    Raises DiskSpaceError or PathError; nothing is left then.
    """
    crcs: list[int] = []
    size = filled = crc = 0
    with map_os_errors(path):
        opened = create(path, buffering=0)
    try:
        with map_os_errors(path), opened as file:
            for piece in pieces:
                data = memoryview(piece).cast("B")
                while data:
                    part = data[: CHUNK - filled]
                    crc, filled = crc32(part, crc), filled + len(part)
                    if filled == CHUNK:
                        crcs.append(crc)
                        crc = filled = 0
                    _write_all(file.fileno(), part)
                    size += len(part)
                    data = data[len(part) :]
            seal(file.fileno())
            found = File(name=path.name, size=size, crcs=(*crcs, crc) if filled else tuple(crcs))
            if verified is not None:
                verified.add(verified.mark(file.fileno(), found))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return found


TICK_NS = 50_000_000
"""Two changes of a file within this time may leave the same modification time (a kernel's tick is
up to 10 ms)."""


def seal(descriptor: int) -> None:
    """Sync a finished file and set its modification time to the nanosecond. The kernel's own times
    have steps of some milliseconds, so any later write leaves another time. Raises OSError."""
    now = time.time_ns()
    os.utime(descriptor, ns=(now, now))
    os.fsync(descriptor)


def checksums(descriptor: int, size: int, extents: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the CRC-32 of each CHUNK of an open file. Chunks outside of ``extents`` (holes) are not
    read. Raises OSError."""
    chunks = {n for start, end in extents for n in range(start // CHUNK, -(-end // CHUNK))}
    # Read, not mapped: a page fault costs more than copying the page.
    buffer = memoryview(bytearray(min(CHUNK, size)))
    for number, start in enumerate(range(0, size, CHUNK)):
        length = min(CHUNK, size - start)
        if number in chunks:
            read_all(descriptor, buffer[:length], start)
            yield crc32(buffer[:length])
        else:
            yield crc_of_zeros(length)


@functools.lru_cache(8)
def crc_of_zeros(length: int) -> int:
    """The checksum of so many zero bytes."""
    return crc32(bytes(length))


def read_all(descriptor: int, into: memoryview, offset: int) -> None:
    """Fill ``into`` with the bytes at ``offset``. Raises OSError."""
    while into:
        count = os.preadv(descriptor, [into], offset)
        if not count:
            raise OSError(errno.EIO, "it became shorter")
        into, offset = into[count:], offset + count


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


class MappedFile:
    """A context manager that maps a file of a checkpoint after comparing its checksums."""

    def __init__(
        self,
        path: Path,
        expected: File,
        verified: Verified | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """``verified``: a file that it knows is not compared. ``check`` is called now and then
        during the comparison, and may stop it by an exception.

        Raises HistoryError naming the file if it is missing, truncated or damaged.
        """
        self._path = path
        self._map: mmap.mmap | None = None
        self.data = memoryview(b"")
        try:
            with open_file(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != expected.size:
                    raise HistoryError(
                        f"{path} is damaged: {size} bytes instead of {expected.size}"
                    )
                if size:
                    # Private and writable, since ctypes takes no read-only memory; never written.
                    self._map = mmap.mmap(
                        file.fileno(),
                        0,
                        flags=mmap.MAP_PRIVATE,
                        prot=mmap.PROT_READ | mmap.PROT_WRITE,
                    )
                self.data = memoryview(self._map if self._map is not None else bytearray())
                if verified is None:
                    _compare(file.fileno(), path, expected, check)
                elif not verified.has(mark := verified.mark(file.fileno(), expected)):
                    _compare(file.fileno(), path, expected, check)
                    verified.add(mark)
        except OSError as error:
            self.close()
            raise HistoryError(f"{path} cannot be read: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> MappedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fetch(self, start: int, end: int) -> None:
        """Have the bytes from ``start`` to ``end`` read from the disk now. Raises HistoryError."""
        if self._map is None:
            return
        try:
            fetch(self._map, start, end)
        except OSError as error:
            raise HistoryError(f"{self._path} cannot be read: {error.strerror}") from error

    def close(self) -> None:
        self.data.release()
        if self._map is not None:
            # If an exception's traceback still holds a view, the map is closed with the traceback.
            with contextlib.suppress(BufferError):
                self._map.close()
            self._map = None


def _compare(descriptor: int, path: Path, expected: File, check: Callable[[], None] | None) -> None:
    starts = range(0, expected.size, CHUNK)
    if len(starts) != len(expected.crcs):
        raise HistoryError(f"{path} is damaged: its checksums do not fit")
    found = checksums(descriptor, expected.size, data_extents(descriptor, expected.size))
    for start, crc, right in zip(starts, found, expected.crcs, strict=True):
        if check is not None:
            check()
        if crc != right:
            raise HistoryError(f"{path} is damaged: the checksum at byte {start} is wrong")


def verify(path: Path, expected: File, verified: Verified | None = None) -> None:
    """Compare a file with its checksums. Raises HistoryError naming the file if it is missing,
    truncated or damaged."""
    if verified is not None:
        with contextlib.suppress(OSError):  # opening it reports the error
            if verified.knows(path, expected):
                return
    MappedFile(path, expected, verified).close()
