"""Compressed pixels of a screen of another machine: the same picture, or an error."""

from __future__ import annotations

import asyncio
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_vnc import Rect, VncError
from quicksand_vnc.client import Encoding, Unpacking, VncClient

from tests.unit.vnc.fake_vnc import FakeVnc, filled, serve, update

WIDTH, HEIGHT = 640, 500
"""More than one band of pixels."""

SIZE = 4 * WIDTH * HEIGHT
NOISE = random.Random(1).randbytes(SIZE)
PLAIN = b"\x12\x34\x56\0" * (WIDTH * HEIGHT)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "vnc.sock"


def packed(x: int, y: int, width: int, height: int, data: bytes, length: int = -1) -> bytes:
    head = struct.pack(">HHHHi", x, y, width, height, Encoding.ZLIB)
    return head + struct.pack(">I", len(data) if length < 0 else length) + data


class Packing:
    """QEMU's zlib stream."""

    def __init__(self) -> None:
        self._stream = zlib.compressobj(1)

    def rect(self, x: int, y: int, width: int, height: int, data: bytes) -> bytes:
        found = self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)
        return packed(x, y, width, height, found)


async def test_pixels_of_one_stream_over_many_rectangles(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(WIDTH, HEIGHT)
        assert server.encodings[:3] == (Encoding.ZLIB, Encoding.FAST, Encoding.RAW)
        stream = Packing()
        await server.expect_request(WIDTH, HEIGHT, incremental=False)
        server.send(update(stream.rect(0, 0, WIDTH, HEIGHT, NOISE)))
        for data in (PLAIN, NOISE):
            await server.expect_request(WIDTH, HEIGHT, incremental=True)
            server.send(
                update(
                    stream.rect(0, 0, WIDTH, HEIGHT, data),
                    stream.rect(0, 0, 0, 0, b""),
                    filled(0, 0, 1, 1, b"\1\2\3\4"),
                    stream.rect(1, 0, 1, 1, b"\5\6\7\0"),
                )
            )

    async with serve(socket, script), VncClient.open(socket, compressed=True) as client:
        assert await client.next_update() == [Rect(0, 0, WIDTH, HEIGHT)]
        assert client.frame.pixels == NOISE
        for data in (PLAIN, NOISE):
            await client.next_update()
            assert client.frame.pixels == b"\1\2\3\4\5\6\7\0" + data[8:]


BOMB = zlib.compress(bytes(1 << 24), 9)
HOSTILE = {
    "too few": packed(0, 0, 16, 16, Packing().rect(0, 0, 0, 0, bytes(1000))[16:]),
    "too many": packed(0, 0, 16, 16, zlib.compress(bytes(1025))),
    "a bomb": packed(0, 0, 16, 16, BOMB),
    "no zlib": packed(0, 0, 16, 16, b"\xff" * 100),
    "an end": packed(0, 0, 16, 16, zlib.compress(bytes(1024))),
    "a length without bounds": packed(0, 0, 16, 16, b"", 1 << 31),
    "much behind it": packed(
        0, 0, 16, 16, Packing().rect(0, 0, 0, 0, bytes(1024))[16:] + bytes(60_000)
    ),
    "beyond the edge": packed(8, 0, 16, 16, zlib.compress(bytes(1024))),
    "nothing": packed(0, 0, 16, 16, b""),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_no_picture_is_an_error_and_nothing_more(socket: Path, name: str) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(16, 16)
        await server.expect_request(16, 16, incremental=False)
        server.send(update(HOSTILE[name]))
        if name == "an end":  # a stream goes on for ever
            server.send(update(packed(0, 0, 16, 16, zlib.compress(bytes(1024)))))

    async with serve(socket, script), VncClient.open(socket, compressed=True) as client:
        with pytest.raises(VncError):
            while True:
                await client.next_update()


async def test_it_is_not_understood_where_it_was_not_asked_for(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(16, 16)
        assert Encoding.ZLIB not in server.encodings
        server.send(update(Packing().rect(0, 0, 16, 16, bytes(1024))))

    async with serve(socket, script), VncClient.open(socket) as client:
        with pytest.raises(VncError, match="unknown encoding"):
            await client.next_update()


@given(st.binary(max_size=300))
async def test_any_bytes_are_pixels_or_an_error(data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    unpacking = Unpacking(reader)
    try:
        unpacking.begin(len(data), 64)
        assert len(await unpacking.read(64)) == 64
        await unpacking.end()
    except (VncError, EOFError):
        pass
