"""Moves bytes between file descriptors and the event loop, unchanged, in bounded memory.

Reading and writing happen in threads: inherited descriptors must not be made non-blocking (the flag
is shared by all processes that have them open), and a slow reader must not stop the event loop. The
threads are daemons, so a thread that hangs does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import threading
from collections import deque

QUEUE_MAX = 1024 * 1024
"""The most bytes that wait for a slow reader before the writer has to wait."""

READ_SIZE = 256 * 1024
READ_AHEAD = 2
"""The number of pieces that are read ahead."""


class FdWriter:
    """Writes to one descriptor. If its reader is gone, `write` raises BrokenPipeError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._chunks: deque[bytes] = deque()
        self._waiting = 0
        self._closing = False
        self._error: OSError | None = None
        self._room = asyncio.Event()
        self._done = asyncio.Event()
        threading.Thread(target=self._work, name=f"write-{descriptor}", daemon=True).start()

    async def write(self, data: bytes) -> None:
        """Queues ``data``; waits while `QUEUE_MAX` bytes or more are unwritten. Raises OSError."""
        with self._changed:
            self._chunks.append(data)
            self._waiting += len(data)
            self._changed.notify()
        while self._error is None and self._waiting > QUEUE_MAX:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error

    async def drain(self) -> None:
        """Waits until all is written. Raises OSError."""
        while self._error is None and self._waiting:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Waits until all is written. Raises OSError. Does not close the descriptor."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        await self._done.wait()
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            try:
                while chunks := self._next():
                    for chunk in chunks:
                        _write_all(self._descriptor, chunk)
                    with self._changed:
                        self._waiting -= sum(len(chunk) for chunk in chunks)
                    self._loop.call_soon_threadsafe(self._room.set)
            except OSError as error:
                self._error = error
            self._loop.call_soon_threadsafe(self._room.set)
            self._loop.call_soon_threadsafe(self._done.set)

    def _next(self) -> list[bytes]:
        """Returns all pieces that are queued; [] at the end."""
        with self._changed:
            while not self._chunks and not self._closing:
                self._changed.wait()
            chunks = list(self._chunks)
            self._chunks.clear()
            return chunks


class FdReader:
    """Reads one descriptor to its end, as an asynchronous iterator of bytes."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._loop = asyncio.get_running_loop()
        self._wanted = threading.Semaphore(READ_AHEAD)
        self._pieces: asyncio.Queue[bytes | OSError] = asyncio.Queue()
        self._started = False

    def __aiter__(self) -> FdReader:
        return self

    async def __anext__(self) -> bytes:
        if not self._started:
            self._started = True
            name = f"read-{self._descriptor}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        piece = await self._pieces.get()
        if isinstance(piece, OSError):
            raise piece
        if not piece:
            self._pieces.put_nowait(piece)  # every later read finds the end, too
            raise StopAsyncIteration
        self._wanted.release()
        return piece

    def _work(self) -> None:
        piece: bytes | OSError = b"more"
        while piece and not isinstance(piece, OSError):
            self._wanted.acquire()
            try:
                piece = _read_some(self._descriptor)
            except OSError as error:
                piece = error
            try:
                self._loop.call_soon_threadsafe(self._pieces.put_nowait, piece)
            except RuntimeError:
                return  # the loop is closed: nobody wants it


def same_file(first: int, second: int) -> bool:
    """Returns whether two descriptors lead to the same file, pipe or terminal."""
    return os.path.sameopenfile(first, second)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(descriptor, view) :]
        except BlockingIOError:  # another process made it non-blocking
            select.select([], [descriptor], [])


def _read_some(descriptor: int) -> bytes:
    while True:
        try:
            return os.read(descriptor, READ_SIZE)
        except BlockingIOError:
            select.select([descriptor], [], [])
