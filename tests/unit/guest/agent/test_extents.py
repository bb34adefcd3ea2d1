"""Files with holes, as a guest sends them: what is read is what was there, or it is refused."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import AgentProtocolError
from quicksand.guest.agent.extents import HOLE, Extent, decode, encode, with_zeros, without_zeros

from tests.each import each

END = struct.pack(">QI", 100, 0)


async def pieces(data: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def record(offset: int, data: bytes) -> bytes:
    return struct.pack(">QI", offset, len(data)) + data


async def assemble(found: AsyncIterator[Extent]) -> tuple[bytes, int]:
    """The file that the pieces are, and how many bytes of data they had."""
    file, data = bytearray(), 0
    async for extent in found:
        assert extent.offset >= len(file)
        file += bytes(extent.offset - len(file)) + extent.data
        data += len(extent.data)
    return bytes(file), data


@given(
    parts=st.lists(st.tuples(st.integers(0, 500), st.binary(min_size=1, max_size=300)), max_size=9),
    tail=st.integers(0, 500),
    size=st.integers(1, 700),
)
async def test_records_cut_anywhere_make_the_file(
    parts: list[tuple[int, bytes]], tail: int, size: int
) -> None:
    file, records = bytearray(), b""
    for gap, data in parts:
        file += bytes(gap)
        records += record(len(file), data)
        file += data
    file += bytes(tail)
    records += record(len(file), b"")
    assert await assemble(decode(pieces(records, size))) == (
        bytes(file),
        sum(len(data) for _, data in parts),
    )


@each(
    "records",
    [
        b"",
        END[:-1],
        record(5, b"x"),
        record(5, b"abc") + record(6, b"x") + END,
        record(5, b"abc") + record(0, b""),
        END + b"x",
        END + END,
        record(2**63 - 1, b"x") + END,
        record(2**64 - 1, b""),
    ],
    ids=["nothing", "half", "no-end", "overlap", "back", "more", "two", "off_t", "beyond"],
)
async def test_what_is_no_file_is_refused(records: bytes) -> None:
    with pytest.raises(AgentProtocolError):
        await assemble(decode(pieces(records, 4)))


@given(noise=st.binary(max_size=200), size=st.integers(1, 50))
async def test_noise_is_refused_or_harmless(noise: bytes, size: int) -> None:
    at = 0
    try:
        async for extent in decode(pieces(noise, size)):
            assert extent.offset >= at
            at = extent.offset + len(extent.data)
    except AgentProtocolError:
        pass


@given(
    runs=st.lists(st.tuples(st.booleans(), st.integers(1, 3 * HOLE)), max_size=6),
    size=st.integers(1000, 3 * HOLE),
)
async def test_long_runs_of_zeros_are_left_out(runs: list[tuple[bool, int]], size: int) -> None:
    file = b"".join(bytes(count) if zero else b"\1" * count for zero, count in runs)
    found, data = await assemble(without_zeros(pieces(file, size)))
    assert found == file
    ones = sum(count for zero, count in runs if not zero)
    assert ones <= data <= ones + 2 * HOLE * len(runs)


async def test_zeros_without_end_are_told_of_as_they_come() -> None:
    async def zeros() -> AsyncIterator[bytes]:
        while True:
            yield bytes(HOLE)

    at = 0
    async for extent in without_zeros(zeros()):
        assert not extent.data
        at = extent.offset
        if at > 100 * HOLE:
            break
    assert at > 100 * HOLE


@given(
    parts=st.lists(
        st.tuples(st.integers(0, 3 * HOLE), st.binary(min_size=1, max_size=300)), max_size=5
    ),
    tail=st.integers(0, 2 * HOLE),
)
async def test_what_is_sent_is_the_file_with_its_holes_or_with_zeros(
    parts: list[tuple[int, bytes]], tail: int
) -> None:
    file, sent = bytearray(), []
    for gap, data in parts:
        file += bytes(gap)
        sent.append(Extent(len(file), data))
        file += data
    file += bytes(tail)
    sent.append(Extent(len(file), b""))

    async def source() -> AsyncIterator[Extent]:
        for extent in sent:
            yield extent

    size = sum(len(data) for _, data in parts)
    assert await assemble(decode(encode(source()))) == (bytes(file), size)
    assert b"".join([chunk async for chunk in with_zeros(source())]) == file
