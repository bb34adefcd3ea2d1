"""Sparse files on their way into and out of a guest: pieces of data with their offsets, and no
holes.

The agent sends records (docs/internals/agent-protocol.md): 8 bytes of offset and 4 bytes of length,
big-endian, then the data. The last record has no data, and its offset is the length of the file.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass

from quicksand.base.errors import AgentProtocolError

HOLE = 64 * 1024
"""Zeros that count as a hole if the agent does not report holes."""

FILE_MAX = 2**63 - 1
"""Bytes; the maximum of off_t."""

_HEADER = struct.Struct(">QI")
_ZEROS = bytes(HOLE)


@dataclass(frozen=True, slots=True)
class Extent:
    """A piece of a file."""

    offset: int
    data: bytes
    """If empty, the file is at least ``offset`` bytes long; the last extent tells its length."""


async def decode(content: AsyncIterator[bytes]) -> AsyncIterator[Extent]:
    """Decode the records in ``content``. Raises AgentProtocolError if offsets do not rise or the
    last record is missing."""
    header = b""
    at = 0
    """The offset of the next byte."""
    left = 0
    is_whole = False
    async for piece in content:
        view = memoryview(piece)
        while view:
            if is_whole:
                raise AgentProtocolError("the agent sent more of a file than it has")
            if left:
                data = bytes(view[:left])
                yield Extent(at, data)
                at, left, view = at + len(data), left - len(data), view[len(data) :]
                continue
            wanted = _HEADER.size - len(header)
            header, view = header + view[:wanted], view[wanted:]
            if len(header) == _HEADER.size:
                offset, left = _HEADER.unpack(header)
                header = b""
                if not at <= offset <= FILE_MAX - left:
                    raise AgentProtocolError("the agent sent parts of a file in the wrong order")
                at, is_whole = offset, left == 0
    if not is_whole:
        raise AgentProtocolError("the agent sent a file without its end")
    yield Extent(at, b"")


async def encode(found: AsyncIterable[Extent]) -> AsyncIterator[bytes]:
    """Encode extents, whose offsets rise, as records. The last one must mark the end of the
    file."""
    end = 0
    async for extent in found:
        end = extent.offset + len(extent.data)
        if extent.data:
            yield _HEADER.pack(extent.offset, len(extent.data)) + extent.data
    yield _HEADER.pack(end, 0)


async def with_zeros(found: AsyncIterable[Extent]) -> AsyncIterator[bytes]:
    """Yield the whole file that extents describe, with zeros for its holes."""
    at = 0
    async for extent in found:
        while at < extent.offset:
            gap = min(HOLE, extent.offset - at)
            yield _ZEROS[:gap]
            at += gap
        if extent.data:
            yield extent.data
            at += len(extent.data)


async def without_zeros(content: AsyncIterator[bytes]) -> AsyncIterator[Extent]:
    """Yield the ``content`` of a whole file without its long runs of zeros."""
    at = 0
    block = bytearray()
    """The bytes from ``at`` on, a multiple of HOLE, that do not fill a block yet."""
    async for piece in content:
        block += piece
        whole = len(block) - len(block) % HOLE
        for extent in _data_of(bytes(block[:whole]), at):
            yield extent
        del block[:whole]
        at += whole
        if whole:
            # Report progress even if there are only zeros.
            yield Extent(at, b"")
    if block.count(0) != len(block):
        yield Extent(at, bytes(block))
    yield Extent(at + len(block), b"")


def _data_of(data: bytes, at: int) -> list[Extent]:
    """Return the blocks of HOLE bytes that hold data, adjacent ones joined."""
    found: list[Extent] = []
    start: int | None = None
    for offset in range(0, len(data) + 1, HOLE):
        is_data = offset < len(data) and data[offset : offset + HOLE] != _ZEROS
        if is_data and start is None:
            start = offset
        elif not is_data and start is not None:
            found.append(Extent(at + start, data[start:offset]))
            start = None
    return found
