"""Reports the events of a fleet to all its watchers, and keeps no more than is useful."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence

from quicksand_fleet.interface import FleetEvent, FleetEventKind, FleetHost

KEPT_MAX = 1000
"""The most events kept for a slow watcher, besides the last one of each machine."""


class _Watcher:
    """The events that one watcher has not read yet."""

    def __init__(self) -> None:
        self.hosts: dict[str, FleetEvent] = {}
        self.others: deque[FleetEvent] = deque(maxlen=KEPT_MAX)
        self.changed = asyncio.Event()

    def put(self, event: FleetEvent) -> None:
        if event.host is not None:
            self.hosts.pop(event.host.name, None)
            self.hosts[event.host.name] = event
        else:
            self.others.append(event)
        self.changed.set()

    def take(self) -> list[FleetEvent]:
        found = sorted([*self.hosts.values(), *self.others], key=lambda event: event.at)
        self.hosts.clear()
        self.others.clear()
        self.changed.clear()
        return found


class Telling:
    """The events of one fleet."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._watchers: list[_Watcher] = []
        self._known: dict[str, FleetHost] = {}
        self._is_closed = False

    def show(self, hosts: Sequence[FleetHost]) -> None:
        """Report the machines that have changed since the last call."""
        now = {host.name: host for host in hosts}
        for name in self._known.keys() - now.keys():
            self.tell(FleetEventKind.HOST_GONE, host=self._known[name])
        for name, host in now.items():
            if self._known.get(name) != host:
                self.tell(FleetEventKind.HOST, host=host)
        self._known = now

    def tell(self, kind: FleetEventKind, **facts: object) -> None:
        """Report an event; ``facts`` are fields of `FleetEvent`."""
        event = FleetEvent(kind=kind, at=self._clock(), **facts)  # type: ignore[arg-type]
        for watcher in self._watchers:
            watcher.put(event)

    async def watch(self) -> AsyncIterator[FleetEvent]:
        """See `BackEnd.watch`."""
        watcher = _Watcher()
        for host in self._known.values():
            watcher.put(FleetEvent(kind=FleetEventKind.HOST, at=self._clock(), host=host))
        self._watchers.append(watcher)
        try:
            while True:
                for event in watcher.take():
                    yield event
                if self._is_closed:
                    return
                await watcher.changed.wait()
        finally:
            self._watchers.remove(watcher)

    def close(self) -> None:
        """End all watches."""
        self._is_closed = True
        for watcher in self._watchers:
            watcher.changed.set()
