"""Simulated time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

Work = Callable[..., object]


class Clock:
    """Does due work, in order. Work due at the same instant is done in the order of its
    planning."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the beginning."""
        self.events = 0
        self._due: list[tuple[float, int, Work, tuple[Any, ...]]] = []
        self._planned = 0

    def after(self, seconds: float, work: Work, *args: object) -> None:
        """Call ``work`` in so many seconds."""
        assert seconds >= 0
        self._planned += 1
        heapq.heappush(self._due, (self.now + seconds, self._planned, work, args))

    def run(self, until: float, *, watch: Callable[[], object] | None = None) -> None:
        """Do everything due before ``until``; ``watch`` is called after each event."""
        while self._due and self._due[0][0] <= until:
            self.now, _, work, args = heapq.heappop(self._due)
            self.events += 1
            work(*args)
            if watch is not None:
                watch()
        self.now = until
