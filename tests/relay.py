"""A line to a port of this host that is long, loses packets, or is gone for a while. Unlike netem
this needs neither root nor a kernel that has it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
from collections.abc import Iterator

SEGMENT = 1448
"""Bytes of a TCP segment on Ethernet."""

ON_THE_WAY_MAX = 256
"""Reads that may be on the way in each direction of a connection, of `READ` bytes at most."""

READ = 16 * SEGMENT


class Relay:
    """Passes connections to one port on to another one. Made by `relay`."""

    def __init__(self, target: int, delay_s: float, loss: float) -> None:
        self._target = target
        self._delay_s = delay_s
        self._loss = loss
        self._random = random.Random(1)
        self._loop = asyncio.new_event_loop()
        self._passes = asyncio.Event()
        self._passes.set()
        self._end = asyncio.Event()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_down = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def freeze(self) -> None:
        """Nothing passes any more, and nobody is told."""
        self._loop.call_soon_threadsafe(self._passes.clear)

    def cut(self) -> None:
        """All connections end, and new ones end at once."""
        self._loop.call_soon_threadsafe(self._cut)

    def mend(self) -> None:
        """All is as before. What was frozen goes on."""
        self._loop.call_soon_threadsafe(self._mend)

    def _cut(self) -> None:
        self._is_down = True
        for writer in self._writers:
            writer.transport.abort()

    def _mend(self) -> None:
        self._is_down = False
        self._passes.set()

    def run(self) -> None:
        """Relays until `end`."""
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    def end(self) -> None:
        """Ends it."""
        self._loop.call_soon_threadsafe(self._end.set)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, sock=self._listener)
        await self._end.wait()
        server.close()
        self._cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if not self._is_down:
                there = await asyncio.open_connection("127.0.0.1", self._target)
                self._writers.add(there[1])
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pass_on(reader, there[1]))
                    both.create_task(self._pass_on(there[0], writer))
                there[1].transport.abort()
                self._writers.discard(there[1])
        writer.transport.abort()
        self._writers.discard(writer)
        self._tasks.discard(task)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(ON_THE_WAY_MAX)

        async def arrive() -> None:
            data = b"more"
            while data:
                due, data = await on_the_way.get()
                await asyncio.sleep(due - self._loop.time())
                await self._passes.wait()
                with contextlib.suppress(OSError):
                    if data:
                        writer.write(data)
                        await writer.drain()
                    else:
                        writer.write_eof()

        arriving = asyncio.create_task(arrive())
        try:
            due, data = 0.0, b"more"
            while data:
                try:
                    data = await reader.read(READ)
                except OSError:
                    data = b""
                # What comes later waits for a segment that is sent again, one round trip after.
                lost = sum(self._random.random() < self._loss for _ in range(0, len(data), SEGMENT))
                due = max(due, self._loop.time() + self._delay_s + 2 * self._delay_s * lost)
                await on_the_way.put((due, data))
            await arriving
        finally:
            arriving.cancel()


@contextlib.contextmanager
def relay(target: int, *, delay_s: float = 0.0, loss: float = 0.0) -> Iterator[Relay]:
    """A port that leads to the port ``target``: each byte takes ``delay_s``, and of segments
    ``loss`` (0 to 1) are lost and sent again."""
    made = Relay(target, delay_s, loss)
    thread = threading.Thread(target=made.run, name="relay")
    thread.start()
    try:
        yield made
    finally:
        made.end()
        thread.join(10)
