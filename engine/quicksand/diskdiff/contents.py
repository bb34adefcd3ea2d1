"""Whether two files hold the same bytes, reading as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from quicksand.diskdiff.ext4.filesystem import FileSystem
from quicksand.diskdiff.ext4.inode import Extent
from quicksand.diskdiff.ranges import Ranges

COMPARED_MAX = 1024 * 1024 * 1024
"""Bytes that are read of all files together. Beyond that, files that lie in other blocks count as
different: what decides is a wait of some seconds or a rare wrong "content"."""

PIECE = 1024 * 1024
"""Bytes that are compared at once."""


class Contents:
    """Two file systems whose files are compared."""

    def __init__(self, a: FileSystem, b: FileSystem, touched: Ranges | None) -> None:
        """``touched``: blocks that may differ between the two, or None for all of them."""
        self._a = a
        self._b = b
        self._touched = touched
        self._left = COMPARED_MAX

    def is_untouched(self, extents: Sequence[Extent]) -> bool:
        """Whether these blocks hold the same in both."""
        if self._touched is None:
            return not extents
        touches = self._touched.touches
        return not any(touches(first, first + count) for _, count, first in extents)

    def equal(self, in_a: Sequence[Extent], in_b: Sequence[Extent], size: int) -> bool:
        """Whether ``size`` bytes are the same. Raises Malformed, ImageError."""
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
        """Of file systems with blocks of different sizes: there is nothing to be clever about."""
        self._left -= size
        if self._left < 0:
            return False
        return all(
            _slice(self._a, in_a, at, PIECE)[: size - at]
            == _slice(self._b, in_b, at, PIECE)[: size - at]
            for at in range(0, size, PIECE)
        )


def _read(filesystem: FileSystem, at: int | None, first: int, count: int) -> bytes:
    """Blocks of an extent, or zeros."""
    if at is None:
        return bytes(count * filesystem.block_size)
    return filesystem.read_blocks(at + first, count)


def _slice(filesystem: FileSystem, extents: Sequence[Extent], at: int, length: int) -> bytes:
    """Bytes of a file from ``at`` on; both are whole numbers of blocks."""
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
    """Runs of a file's first ``end`` blocks: (first, count, where in a, where in b), None for where
    there are only zeros."""
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
    """Where block ``logical`` is, up to which block that goes on, and the extent's number."""
    while number < len(extents) and extents[number].logical + extents[number].length <= logical:
        number += 1
    if number == len(extents):
        return None, end, number
    extent = extents[number]
    if extent.logical > logical:
        return None, min(extent.logical, end), number
    stop = min(extent.logical + extent.length, end)
    return extent.physical + logical - extent.logical, stop, number
