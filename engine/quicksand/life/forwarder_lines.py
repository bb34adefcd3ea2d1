"""Connections to a guest's agent for many forwarded connections: an agent has 256 channels for each
of its clients, so another client connects when all others are full."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from quicksand.base.errors import StateError
from quicksand.life.guest import InGuest
from quicksand.life.sandbox_life import Life

PLACES = 240
"""The most forwarded connections of one client of the agent."""

LINES_MAX = 5
"""The most clients of the agent, which has ports for 24 (`AGENT_PORTS`)."""

PLACE_S = 10.0
"""Seconds that a connection waits for a place, about as long as in a guest's own backlog."""


@dataclass(slots=True, eq=False)
class Line:
    """One client of the agent."""

    life: Life
    guest: InGuest
    used: int = 0
    """The number of places that are taken."""


class Lines:
    """The clients of one guest's agent. The first one lasts as long as this object."""

    def __init__(self, open_: Callable[[], Life]) -> None:
        """``open_`` makes a client, which connects when it is used."""
        self._open = open_
        self._places = asyncio.Semaphore(LINES_MAX * PLACES)
        self._lines = [self._make()]

    @property
    def first(self) -> Line:
        return self._lines[0]

    def _make(self) -> Line:
        life = self._open()
        return Line(life, InGuest(life))

    @contextlib.asynccontextmanager
    async def place(self) -> AsyncIterator[InGuest]:
        """Hold a place, in the order of arrival. Raises StateError if none becomes free."""
        try:
            async with asyncio.timeout(PLACE_S):
                await self._places.acquire()
        except TimeoutError:
            raise StateError(f"{LINES_MAX * PLACES} connections are open") from None
        try:
            line = self._find()
            line.used += 1
            try:
                yield line.guest
            finally:
                line.used -= 1
                self._drop_unused(line)
        finally:
            self._places.release()

    def _find(self) -> Line:
        """Return the first client with a free place: so later ones become empty."""
        found = next((line for line in self._lines if line.used < PLACES), None)
        if found is None:
            found = self._make()
            self._lines.append(found)
        return found

    def _drop_unused(self, line: Line) -> None:
        if not line.used and line is not self.first:
            self._lines.remove(line)
            line.life.close()

    def close(self) -> None:
        for line in self._lines:
            line.life.close()
