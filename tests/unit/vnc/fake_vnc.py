"""A scripted, sometimes hostile VNC server on a Unix socket, or at a port."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

Script = Callable[["FakeVnc"], Awaitable[None]]


def raw(x: int, y: int, width: int, height: int, data: bytes) -> bytes:
    """A rectangle of pixels."""
    return struct.pack(">HHHHi", x, y, width, height, 0) + data


def filled(x: int, y: int, width: int, height: int, pixel: bytes) -> bytes:
    return raw(x, y, width, height, pixel * (width * height))


def resized(width: int, height: int, *, reason: int = 0, status: int = 0) -> bytes:
    """A rectangle that says another size of the screen (ExtendedDesktopSize)."""
    screen = struct.pack(">B3xIHHHHI", 1, 0, 0, 0, width, height, 0)
    return struct.pack(">HHHHi", reason, status, width, height, -308) + screen


def cursor(width: int, height: int, data: bytes, *, encoding: int = 0) -> bytes:
    return struct.pack(">HHHHii", 1, 2, width, height, -314, encoding) + data


def update(*rects: bytes) -> bytes:
    return struct.pack(">BxH", 0, len(rects)) + b"".join(rects)


class FakeVnc:
    """One connection. The script gets it after the handshake, whose parts it can replace."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def greet(self, width: int, height: int) -> None:
        self.send(b"RFB 003.008\n")
        assert await self.reader.readexactly(12) == b"RFB 003.008\n"
        self.send(b"\x01\x01")
        assert await self.reader.readexactly(1) == b"\x01"
        self.send(struct.pack(">I", 0))
        assert await self.reader.readexactly(1) == b"\x01"
        pixels = struct.pack(">BBBBHHHBBB3x", 32, 24, 0, 1, 255, 255, 255, 16, 8, 0)
        self.send(struct.pack(">HH", width, height) + pixels + struct.pack(">I", 4) + b"QEMU")
        await self.expect(">BxxxBBBBHHHBBB3x", 0, 32, 24, 0, 1, 255, 255, 255, 0, 8, 16)
        kind, count = struct.unpack(">BxH", await self.reader.readexactly(4))
        assert kind == 2
        self.encodings = struct.unpack(f">{count}i", await self.reader.readexactly(4 * count))

    async def expect(self, form: str, *wanted: int) -> None:
        """Read a message, which must be this one; reminders are passed over."""
        kind = await self.reader.readexactly(1)
        while kind == b"\x06" and wanted[0] != 6:
            await self.reader.readexactly(7)
            kind = await self.reader.readexactly(1)
        found = kind + await self.reader.readexactly(struct.calcsize(form) - 1)
        assert struct.unpack(form, found) == wanted

    async def expect_request(self, width: int, height: int, *, incremental: bool) -> None:
        await self.expect(">BBHHHH", 3, incremental, 0, 0, width, height)


@contextlib.asynccontextmanager
async def serve(path: Path | None, script: Script) -> AsyncIterator[int]:
    """Serve at ``path``, or without one at the port that this yields; an error of the script is
    raised at the end."""
    failures: list[BaseException] = []
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await script(FakeVnc(reader, writer))
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        except (AssertionError, Exception) as error:  # noqa: BLE001 - raised below
            failures.append(error)
        finally:
            writer.close()

    if path is None:
        server = await asyncio.start_server(handle, "127.0.0.1")
    else:
        server = await asyncio.start_unix_server(handle, path)
    try:
        yield server.sockets[0].getsockname()[1] if path is None else 0
    finally:
        server.close()
        await server.wait_closed()
        if tasks:
            await asyncio.wait(tasks, timeout=10)
        for failure in failures:
            raise failure
