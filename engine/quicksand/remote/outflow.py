"""The output of a command on its way to a client that may go and come again."""

from __future__ import annotations

import asyncio

ROOM = 256 * 1024
"""Bytes that wait for a slow client before the command has to."""

KEPT_MAX = 1024 * 1024
"""Bytes that are kept of a stream for a client that may come again."""


class Outflow:
    """One stream. The command's side `put`s and `end`s; the client's side `take`s from a place on,
    which may be one that it had read before, as far as that is kept."""

    def __init__(self, *, keeps: bool) -> None:
        """``keeps``: what was taken is kept, and nobody waits while no client is there."""
        self._keeps = keeps
        self._bytes = bytearray()
        self._first = 0
        """The place in the stream of the first byte that is kept."""
        self._taken = 0
        self._waits = not keeps
        """Whether the command waits for a client that reads slowly."""
        self.is_over = False
        self._changed = asyncio.Event()

    async def put(self, data: bytes) -> None:
        """Add output. Waits while a client is there that has not taken what came before."""
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
        """Return the place of the next output from ``at`` on, and that output; b"" at the end. The
        place is a later one if what lies between was not kept."""
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
        """A client is there: wait for it."""
        self._waits = True

    def let_go(self) -> None:
        """The client has gone: nobody waits for it. What is not kept is dropped."""
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
