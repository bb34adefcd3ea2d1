"""One process's events for many listeners, each at its own pace, with bounded memory."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Protocol

HELD_MAX = 1024 * 1024
"""The most bytes of output that wait for one listener. With more, the process is blocked."""

STALLED_S = 30.0
"""Seconds after which a listener that takes nothing no longer holds the process up: it is left
behind, and its stream ends."""

LISTENERS_MAX = 32
"""The most listeners of one process."""

Event = dict[str, Any]
"""An event as it is sent: ``{"start": …}``, ``{"data": …}`` or ``{"end": …}``."""


class LeftBehind(Exception):  # noqa: N818 - reads as a fact
    """Raised if this listener has taken nothing for too long."""


class Cut(Exception):  # noqa: N818 - reads as a fact
    """Raised if the sandbox is gone: the connection is to be broken off."""


class Source(Protocol):
    """A source of events."""

    async def next(self) -> Event | None: ...

    def close(self) -> None: ...


class Listener:
    """Gets all events after it was made; `close` ends that."""

    def __init__(self, fanout: Fanout) -> None:
        self._fanout = fanout
        self._events: deque[tuple[Event, int]] = deque()
        self._held = 0
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._is_over = False

    async def next(self) -> Event | None:
        """Returns the next event; None after the last. Raises LeftBehind, Cut."""
        while not self._events:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return None
            self._changed.clear()
            await self._changed.wait()
        event, size = self._events.popleft()
        self._held -= size
        self._fanout.taken()
        return event

    def close(self) -> None:
        """Ends the listening. Idempotent."""
        self._fanout.leave(self)

    @property
    def is_full(self) -> bool:
        return self._held >= HELD_MAX and self._failure is None

    def put(self, event: Event, size: int) -> None:
        self._events.append((event, size))
        self._held += size
        self._changed.set()

    def finish(self, failure: Exception | None = None) -> None:
        self._is_over = True
        self._failure = self._failure or failure
        if failure is not None:
            self._events.clear()
            self._held = 0
        self._changed.set()


class Fanout:
    """Passes each event to all listeners."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._taken = asyncio.Event()
        self._failure: Exception | None = None
        self._is_over = False

    def __len__(self) -> int:
        return len(self._listeners)

    def listen(self, last: Event | None = None) -> Listener:
        """Returns a new listener. ``last`` is its event if all is over already."""
        listener = Listener(self)
        if self._is_over or self._failure is not None:
            if last is not None:
                listener.put(last, 0)
            listener.finish(self._failure)
        else:
            self._listeners.append(listener)
        return listener

    async def put(self, event: Event, size: int = 0) -> None:
        """Passes on an event of ``size`` bytes, when all have room for it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + STALLED_S
        while slow := [found for found in self._listeners if found.is_full]:
            self._taken.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._taken.wait()
            except TimeoutError:
                for listener in slow:
                    if listener.is_full:
                        listener.finish(LeftBehind())
                        self.leave(listener)
        for listener in self._listeners:
            listener.put(event, size)

    def finish(self, failure: Exception | None = None) -> None:
        """Notes that there are no more events. Idempotent."""
        self._is_over = True
        self._failure = self._failure or failure
        for listener in self._listeners:
            listener.finish(failure)
        self._listeners.clear()
        self._taken.set()

    def leave(self, listener: Listener) -> None:
        if listener in self._listeners:
            self._listeners.remove(listener)
        self._taken.set()

    def taken(self) -> None:
        self._taken.set()


async def events(listener: Source, idle_s: float) -> AsyncIterator[Event]:
    """Yields the events, and ``{"keepalive": {}}`` whenever none came for so many seconds. Raises
    as `Listener.next`."""
    while True:
        try:
            async with asyncio.timeout(idle_s):
                event = await listener.next()
        except TimeoutError:
            event = {"keepalive": {}}
        if event is None:
            return
        yield event
