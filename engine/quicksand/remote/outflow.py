"""The output of a command for a client that may go and come back."""

from __future__ import annotations

import asyncio

ROOM = 256 * 1024
"""Bytes that wait for a slow client before the command must wait."""

KEPT_MAX = 1024 * 1024
"""Bytes of a stream kept for a client that may come back."""


class Outflow:
    """One stream. The command's side calls `put` and `end`; the client's side calls `take` from a
    position on, even one that it has already read, as far as the output is kept."""

    def __init__(self, *, keeps: bool) -> None:
        """``keeps``: output that was taken is kept, and nobody waits while no client is there."""
        self._keeps = keeps
        self._bytes = bytearray()
        self._first = 0
        """The position in the stream of the first byte that is kept."""
        self._taken = 0
        self._waits = not keeps
        """Whether the command waits for a client that reads slowly."""
        self.is_over = False
        self._changed = asyncio.Event()

    async def put(self, data: bytes) -> None:
        """Add output. Wait while a connected client has not taken the earlier output."""
        self._bytes += data
        self._wake()
        while self._end - self._taken > ROOM and self._waits:
            self._changed.clear()
            await self._changed.wait()
        surplus = len(self._bytes) - (KEPT_MAX if self._keeps else 2 * ROOM)
        if surplus > 0:
            self._drop(surplus)

    def end(self) -> None:
        """Say that no more comes."""
        self.is_over = True
        self._wake()

    async def take(self, at: int) -> tuple[int, bytes]:
        """Return the position of the next output from ``at`` on, and that output; b"" at the end.
        The position is later than ``at`` if output in between was not kept."""
        self._taken = max(at, self._first)
        self._wake()
        while self._taken >= self._end and not self.is_over:
            self._changed.clear()
            await self._changed.wait()
        start = self._taken - self._first
        data = bytes(self._bytes[start : start + ROOM])
        place = self._taken
        if not self._keeps:
            self._drop(start)
        return place, data

    def hold(self) -> None:
        """Wait for the client from now on: it is there."""
        self._waits = True

    def let_go(self) -> None:
        """Stop waiting for the client, which has gone. Output that is not kept is dropped."""
        self._waits = False
        self._wake()

    @property
    def _end(self) -> int:
        return self._first + len(self._bytes)

    def _drop(self, count: int) -> None:
        del self._bytes[:count]
        self._first += count

    def _wake(self) -> None:
        self._changed.set()
