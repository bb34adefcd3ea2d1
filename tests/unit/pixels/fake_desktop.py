"""A guest's screen for viewers in other processes: a VNC server on a thread."""

from __future__ import annotations

import asyncio
import struct
import threading
from pathlib import Path
from typing import Self

from PIL import Image

from tests.unit.vnc.fake_vnc import FakeVnc, raw, resized, update


class FakeDesktop:
    """Used with ``with``. Shows ``picture`` to any number of viewers."""

    def __init__(self, path: Path, picture: Image.Image) -> None:
        self.path = path
        self.events: list[tuple[str, int, int, int]] = []
        """("key", keysym, down, 0) or ("pointer", x, y, buttons), as they came."""
        self.viewers = 0
        self.reminders = 0
        """How often viewers have asked to look for changes."""
        self._picture = picture.convert("RGBX")
        self._version = 1
        self._changes: list[tuple[int, tuple[int, int, int, int]]] = []
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._changed = asyncio.Condition()
        self._thread = threading.Thread(target=self._run, name="fake-desktop")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Ends as QEMU does: all connections break."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._main.cancel)
            self._thread.join(60)
            self.path.unlink(missing_ok=True)

    def show(self, picture: Image.Image, box: tuple[int, int, int, int] | None = None) -> None:
        """Shows another picture; ``box`` is what has changed."""
        found = box or (0, 0, *picture.size)

        async def change() -> None:
            async with self._changed:
                self._picture = picture.convert("RGBX")
                self._version += 1
                self._changes.append((self._version, found))
                self._changed.notify_all()

        asyncio.run_coroutine_threadsafe(change(), self._loop).result(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._serve())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._talk(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_unix_server(connected, self.path)
        self._ready.set()
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            for task in list(tasks):
                task.cancel()
            if tasks:
                await asyncio.wait(list(tasks))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        vnc = FakeVnc(reader, writer)
        wanted = asyncio.Event()
        self.viewers += 1
        sending: asyncio.Task[None] | None = None
        try:
            await vnc.greet(*self._picture.size)
            sending = asyncio.create_task(self._send(vnc, wanted))
            while True:
                await self._take(reader, wanted)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.viewers -= 1
            if sending is not None:
                sending.cancel()
            writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, wanted: asyncio.Event) -> None:
        kind = (await reader.readexactly(1))[0]
        if kind == 3:
            await reader.readexactly(9)
            wanted.set()
        elif kind == 4:
            down, keysym = struct.unpack(">BxxI", await reader.readexactly(7))
            self.events.append(("key", keysym, down, 0))
        elif kind == 5:
            buttons, x, y = struct.unpack(">BHH", await reader.readexactly(5))
            self.events.append(("pointer", x, y, buttons))
        elif kind == 6:
            await reader.readexactly(7)
            self.reminders += 1
        else:
            raise AssertionError(f"message {kind}")

    async def _send(self, vnc: FakeVnc, wanted: asyncio.Event) -> None:
        seen, size = 0, self._picture.size
        while True:
            await wanted.wait()
            async with self._changed:
                while self._version <= seen:
                    await self._changed.wait()
                picture, version = self._picture, self._version
                boxes = [box for number, box in self._changes if number > seen]
            whole = seen == 0 or picture.size != size
            x, y, right, bottom = (0, 0, *picture.size) if whole else _around(boxes)
            if picture.size != size:
                size = picture.size
                vnc.send(update(resized(*size)))
                wanted.clear()
                continue
            wanted.clear()
            seen = version
            right, bottom = min(right, size[0]), min(bottom, size[1])  # others had other sizes
            data = picture.crop((x, y, right, bottom)).tobytes()
            vnc.send(update(raw(x, y, right - x, bottom - y, data)))
            await vnc.writer.drain()


def _around(boxes: list[tuple[int, int, int, int]]) -> tuple[int, int, int, int]:
    lefts, tops, rights, bottoms = zip(*boxes, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)
