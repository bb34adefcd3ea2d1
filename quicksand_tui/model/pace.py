"""The time that the rest of some work takes, by the share of it that is done."""

from __future__ import annotations

from collections import deque
from typing import Final

SHARE_MIN: Final = 0.1
"""The least share of the work that its pace is taken from."""

SECONDS_MIN: Final = 5.0
"""The least seconds of work that its pace is taken from."""


class Pace:
    """Follows work from its beginning. It trusts the later half of the time that the work took so
    far: the first steps, such as downloads, may have a pace of their own."""

    def __init__(self, began: float) -> None:
        """``began`` is in seconds of any clock, as are all times that the methods take and
        return."""
        self._began = began
        self._seen = deque([(began, 0.0)])
        """The time at which each share was done; old ones that are no longer needed are dropped."""
        self._ends = 0.0

    def take(self, share: float, now: float) -> float:
        """Takes the ``share`` that is done, from 0 to 1; returns the time when the work ends, by
        its speed until the last growth; 0 as long as that cannot be told."""
        if share <= self._seen[-1][1]:
            return self._ends
        half = self._began + (now - self._began) / 2
        while len(self._seen) > 1 and self._seen[1][0] <= half:
            self._seen.popleft()
        at, before = self._seen[0]
        self._seen.append((now, share))
        if share >= SHARE_MIN and now - self._began >= SECONDS_MIN:
            self._ends = now + (1.0 - share) * (now - at) / (share - before)
        return self._ends
