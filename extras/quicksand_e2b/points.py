"""The use of a host by a sandbox, at several moments."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from quicksand import QuicksandError, Sandbox

EVERY_S = 15.0
"""Seconds between two looks of the server."""
POINTS_MAX = 300
"""The most points of a sandbox: those of more than an hour, if nobody else looks."""
AT_ONCE, LOOK_S = 4, 10.0
"""The number of guests that are looked at at the same time, and the seconds for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """The use of a host by a sandbox at one moment. Sizes are bytes."""

    at: float
    """Unix time."""
    cpu_percent: float
    """Percent of one processor, since the look before."""
    memory_used: int
    memory_total: int
    memory_cached: int
    disk_used: int
    disk_total: int


class History:
    """The last points of a sandbox."""

    def __init__(self) -> None:
        self._points: deque[Point] = deque(maxlen=POINTS_MAX)
        self._before: tuple[float, float] | None = None
        """Seconds of processor time, and the time of that reading."""

    async def look(self, sandbox: Sandbox) -> None:
        """Adds the point of this moment. Raises QuicksandError."""
        stats = await sandbox.stats()
        memory = (await sandbox.request("info")).get("memory")
        cached = memory.get("cached") if isinstance(memory, dict) else 0
        seconds, at = stats.host.cpu_seconds, time.monotonic()
        before, self._before = self._before, (seconds, at)
        if before is not None and at > before[1]:
            share = (seconds - before[0]) / (at - before[1])
        else:
            share = seconds / max(stats.host.uptime_s, 0.001)
        point = Point(
            at=time.time(),
            cpu_percent=round(100 * max(0.0, share), 2),
            memory_used=max(0, stats.guest_memory_total - stats.guest_memory_available),
            memory_total=stats.guest_memory_total,
            memory_cached=cached if isinstance(cached, int) and 0 <= cached < 2**63 else 0,
            disk_used=max(0, stats.guest_disk_total - stats.guest_disk_free),
            disk_total=stats.guest_disk_total,
        )
        self._points.append(point)

    def within(self, start: float, end: float) -> list[Point]:
        """Returns the points from ``start`` to ``end``, Unix times, the oldest first."""
        return [point for point in self._points if start <= point.at <= end]


async def look_now_and_then(
    looks: Callable[[], Iterable[Callable[[], Coroutine[Any, Any, None]]]],
) -> None:
    """Does all of ``looks()`` every so often, until cancelled. A look that fails is left out."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(look: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async with places:
            with contextlib.suppress(QuicksandError, TimeoutError, OSError):
                async with asyncio.timeout(LOOK_S):
                    await look()

    while True:
        await asyncio.sleep(EVERY_S)
        async with asyncio.TaskGroup() as group:
            for look in looks():
                group.create_task(one(look))
