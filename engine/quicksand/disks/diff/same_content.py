"""Compares the contents of two files, reading as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quicksand.disks.diff.ext4.filesystem import FileSystem
from quicksand.disks.diff.ext4.inode import Extent
from quicksand.disks.diff.ranges import Ranges

COMPARED_MAX = 1024 * 1024 * 1024
"""Bytes that are compared in all files together. Beyond that, files in rewritten blocks count as
different: a rare wrong "content" is better than a wait of minutes."""

PIECE = 1024 * 1024
"""Bytes that are compared in one step."""


class Contents:
    """Compares files of two file systems."""

    def __init__(self, a: FileSystem, b: FileSystem, touched: Ranges | None) -> None:
        """``touched`` holds the blocks that may differ, or is None if all may."""
        self._a = a
        self._b = b
        self._touched = touched
        self._left = COMPARED_MAX

    def is_untouched(self, extents: Sequence[Extent]) -> bool:
        """Whether these blocks certainly hold the same bytes in both."""
        if self._touched is None:
            return not extents
        touches = self._touched.touches
        return not any(touches(first, first + count) for _, count, first in extents)

    def equal(self, in_a: Sequence[Extent], in_b: Sequence[Extent], size: int) -> bool:
        """Whether the first ``size`` bytes are the same. Raises Malformed, ImageError."""
        if in_a == in_b and self.is_untouched(in_a):
            return True
        if self._a.block_size != self._b.block_size:
            return self._equal_bytes(in_a, in_b, size)
        block = self._a.block_size
        for logical, count, at_a, at_b in _side_by_side(in_a, in_b, -(-size // block)):
            if at_a == at_b and (at_a is None or self.is_untouched([Extent(0, count, at_a)])):
                continue
            if not self._equal_run(at_a, at_b, count, min(count * block, size - logical * block)):
                return False
        return True

    def _equal_run(self, at_a: int | None, at_b: int | None, count: int, size: int) -> bool:
        self._left -= size
        if self._left < 0:
            return False
        step = max(1, PIECE // self._a.block_size)
        for first in range(0, count, step):
            length = min(step, count - first)
            rest = min(length * self._a.block_size, size - first * self._a.block_size)
            here = _read(self._a, at_a, first, length)[:rest]
            if here != _read(self._b, at_b, first, length)[:rest]:
                return False
        return True

    def _equal_bytes(self, in_a: Sequence[Extent], in_b: Sequence[Extent], size: int) -> bool:
        """Compare files of file systems with different block sizes, byte by byte."""
        self._left -= size
        if self._left < 0:
            return False
        return all(
            _slice(self._a, in_a, at, PIECE)[: size - at]
            == _slice(self._b, in_b, at, PIECE)[: size - at]
            for at in range(0, size, PIECE)
        )


def _read(filesystem: FileSystem, at: int | None, first: int, count: int) -> bytes:
    """Read blocks of an extent; ``at`` is None for a hole, which reads as zeros."""
    if at is None:
        return bytes(count * filesystem.block_size)
    return filesystem.read_blocks(at + first, count)


def _slice(filesystem: FileSystem, extents: Sequence[Extent], at: int, length: int) -> bytes:
    """Read ``length`` bytes of a file from ``at`` on, both multiples of the block size."""
    block = filesystem.block_size
    first, count = at // block, length // block
    data = bytearray(length)
    for extent in extents:
        start = max(first, extent.logical)
        end = min(first + count, extent.logical + extent.length)
        if start < end:
            place = extent.physical + start - extent.logical
            found = filesystem.read_blocks(place, end - start)
            data[(start - first) * block : (end - first) * block] = found
    return bytes(data)


def _side_by_side(
    in_a: Sequence[Extent], in_b: Sequence[Extent], end: int
) -> Iterator[tuple[int, int, int | None, int | None]]:
    """Cut a file's first ``end`` blocks into runs: (first, count, place in a, place in b). A place
    is None for a hole."""
    number_a = number_b = logical = 0
    while logical < end:
        at_a, stop_a, number_a = _locate(in_a, number_a, logical, end)
        at_b, stop_b, number_b = _locate(in_b, number_b, logical, end)
        stop = min(stop_a, stop_b)
        yield logical, stop - logical, at_a, at_b
        logical = stop


def _locate(
    extents: Sequence[Extent], number: int, logical: int, end: int
) -> tuple[int | None, int, int]:
    """Return the place of block ``logical``, where its run ends, and the number of its extent."""
    while number < len(extents) and extents[number].logical + extents[number].length <= logical:
        number += 1
    if number == len(extents):
        return None, end, number
    extent = extents[number]
    if extent.logical > logical:
        return None, min(extent.logical, end), number
    stop = min(extent.logical + extent.length, end)
    return extent.physical + logical - extent.logical, stop, number
