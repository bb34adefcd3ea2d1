"""Maps of sparse files in tar archives: the ranges of a file that an archive has (GNU tar, "Storing
Sparse Files"). The old form has the map in the header and in blocks after it, those of pax in an
extended header (0.0, 0.1) or in front of the content (1.0)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping

Ranges = tuple[tuple[int, int], ...]
"""Offsets and lengths, ascending, with holes between them."""

RANGES_MAX = 100_000
"""Ranges of a file. One of 50 GiB that has every other MiB has half as many."""

PREFIX = "GNU.sparse."
MAP = "GNU.sparse.map"
"""In an extended header: the ranges as numbers with commas between them (0.1)."""

REPEATED = ("GNU.sparse.offset", "GNU.sparse.numbytes")
"""The ranges as repeated fields (0.0)."""

_HEADER_AT, _HEADER_RANGES, _HEADER_SIZE_AT = 386, 4, 483
_BLOCK, _BLOCK_RANGES = 512, 21
_PAIR, _NUMBER = 24, 12
_LINE = re.compile(rb"([0-9]{1,19})\n")

Read = Callable[[int], bytes]
"""Returns that many bytes of the archive."""


def read_old(header: bytes, read: Read, number: Callable[[bytes], int]) -> tuple[int, Ranges]:
    """Read the map of a member of the type "S"; ``number`` decodes one of a header. Return the size
    of the file, and its ranges. Raises ValueError."""
    size = number(header[_HEADER_SIZE_AT : _HEADER_SIZE_AT + _NUMBER])
    block, at, count = header, _HEADER_AT, _HEADER_RANGES
    found: list[tuple[int, int]] = []
    while True:
        for place in range(at, at + count * _PAIR, _PAIR):
            pair = block[place : place + _PAIR]
            if pair.strip(b"\0"):
                found.append((number(pair[:_NUMBER]), number(pair[_NUMBER:])))
        if not block[at + count * _PAIR]:
            return size, tuple(found)
        if len(found) > RANGES_MAX:
            raise ValueError("its map is too long")
        block, at, count = read(_BLOCK), 0, _BLOCK_RANGES


def is_in_content(extra: Mapping[str, bytes]) -> bool:
    """Whether an extended header says that the map is in front of the content (1.0)."""
    return extra.get(f"{PREFIX}major") == b"1"


def read_pax(extra: Mapping[str, bytes], read: Read) -> tuple[int, Ranges]:
    """Read a map announced by an extended header; ``read`` reads the content. Return the size of
    the file, and its ranges. Raises ValueError."""
    size = extra.get(f"{PREFIX}realsize") or extra.get(f"{PREFIX}size") or b""
    numbers = _numbers(read) if is_in_content(extra) else extra.get(MAP, b"").split(b",")
    if not all(number.isdigit() and len(number) < 20 for number in (size, *filter(None, numbers))):
        raise ValueError("its map has something that is no number")
    values = list(map(int, filter(None, numbers)))
    if len(values) % 2 or len(values) > 2 * RANGES_MAX:
        raise ValueError("its map is too long or cut off")
    return int(size), tuple(zip(values[::2], values[1::2], strict=True))


def _numbers(read: Read) -> list[bytes]:
    """Read lines with a number each, up to the end of a block. The first gives the number of pairs
    that follow."""
    text, at, wanted = b"", 0, 1
    found: list[bytes] = []
    while len(found) < wanted:
        match = _LINE.match(text, at)
        if match is None:
            if len(text) - at > _NUMBER * 2:
                raise ValueError("its map is damaged")
            text, at = text[at:] + read(_BLOCK), 0
            continue
        found.append(match[1])
        at = match.end()
        if len(found) == 1:
            wanted += 2 * int(match[1])
            if wanted > 2 * RANGES_MAX + 1:
                raise ValueError("its map is too long")
    return found[1:]


def require_ranges(ranges: Ranges, size: int, stored: int) -> None:
    """Raise ValueError unless ranges ascend within a file of ``size``, and the archive has
    ``stored`` bytes for them."""
    ends = [0, *(offset + length for offset, length in ranges)]
    ascend = all(end <= offset for end, (offset, _) in zip(ends, ranges, strict=False))
    if not ascend or ends[-1] > size or sum(length for _, length in ranges) != stored:
        raise ValueError("its map does not fit its size")


def placed(pieces: Iterator[bytes], ranges: Ranges) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of a content with their offsets in the file."""
    left = iter(itertools.chain(ranges, ((0, 0),)))
    offset, room = next(left)
    for piece in pieces:
        rest = piece
        while rest:
            while not room:
                offset, room = next(left)
            yield offset, rest[:room]
            taken = min(room, len(rest))
            offset, room, rest = offset + taken, room - taken, rest[taken:]
