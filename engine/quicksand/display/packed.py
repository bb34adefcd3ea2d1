"""Compressed pixels of a VNC server: one zlib stream, of which each rectangle brings a part
(encoding 6, which RFC 6143 reserves; QEMU, ui/vnc-enc-zlib.c)."""

from __future__ import annotations

import asyncio
import zlib

from quicksand.base.errors import DisplayError

PACKED_BYTES = 64 * 1024
"""Bytes that are read at once, and by which pixels that cannot be compressed may grow."""


class Unpacking:
    """The stream of one connection. Call `begin`, `read`, `end` for each rectangle; each raises
    DisplayError for nonsense, EOFError and OSError."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._stream = zlib.decompressobj()
        self._left = 0
        """Bytes of the rectangle that were not read yet."""
        self._packed = b""
        """Bytes that were read, and not unpacked yet."""

    def begin(self, length: int, size: int) -> None:
        """Begin a rectangle of ``size`` bytes, compressed to ``length``."""
        if length > size + size // 64 + PACKED_BYTES:
            raise DisplayError(f"the display sent {length} bytes of compressed pixels for {size}")
        self._left = length

    async def read(self, count: int) -> bytes:
        """The next ``count`` bytes of pixels."""
        found = bytearray()
        while len(found) < count:
            # Even without input: unpacked bytes may wait for room.
            if piece := self._unpack(count - len(found)):
                found += piece
            elif not self._left:
                raise DisplayError("the display sent too few compressed pixels")
            else:
                self._packed = await self._take(PACKED_BYTES)
        await asyncio.sleep(0)  # bytes that have arrived are read without waiting
        return bytes(found)

    async def end(self) -> None:
        """End the rectangle: the remaining bytes end its part of the stream."""
        self._packed += await self._take(PACKED_BYTES)
        if self._unpack(1) or self._packed or self._left:
            raise DisplayError("the display sent too many compressed pixels")

    async def _take(self, most: int) -> bytes:
        found = await self._reader.readexactly(min(self._left, most))
        self._left -= len(found)
        return found

    def _unpack(self, most: int) -> bytes:
        try:
            found = self._stream.decompress(self._packed, most)
        except zlib.error as error:
            raise DisplayError("the display sent pixels that cannot be unpacked") from error
        self._packed = self._stream.unconsumed_tail
        return found
