"""Sets of numbers, stored as ranges: parts of a disk."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class Ranges:
    """The union of half-open ranges (start, end), which may overlap."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(pair for pair in pairs if pair[0] < pair[1]):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touches(self, start: int, end: int) -> bool:
        """Whether any number from ``start`` to before ``end`` is in the set."""
        at = bisect_right(self._ends, start)
        return at < len(self._starts) and self._starts[at] < end

    def pairs(self) -> Iterable[tuple[int, int]]:
        """The ranges, ascending and merged, so that none touches another."""
        return zip(self._starts, self._ends, strict=True)
