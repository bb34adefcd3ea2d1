"""Output of a guest that waits to be parsed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.panes.content import Said

SLICE = 4 * 1024
"""Bytes parsed at once, which takes 1 ms; for the worst hostile input about 100 ms (measured)."""


class Backlog:
    """Keeps output in its order, until the frame clock has time for it."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[bytes, Said]] = deque()

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, data: bytes, said: Said) -> None:
        self._pieces.append((data, said))

    def take(self) -> tuple[bytes, Said]:
        """Removes and returns the next slice, and how it was said."""
        data, said = self._pieces.popleft()
        if len(data) > SLICE:
            self._pieces.appendleft((data[SLICE:], said))
        return data[:SLICE], said

    def drop(self) -> int:
        """Drops everything; returns how many bytes that was."""
        dropped = sum(len(data) for data, _ in self._pieces)
        self._pieces.clear()
        return dropped
