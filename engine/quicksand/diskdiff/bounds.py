"""Limits on what a disk that somebody else wrote can make us do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")

STEPS_MAX = 10_000_000
"""Names, extents and blocks that are looked at in one file system. A full one of ours, with half a
million files, takes a fifth of it; this many take about ten seconds."""


class Malformed(ValueError):  # noqa: N818 - reads as a fact
    """What is on a disk makes no sense, or is more than we look at. Never leaves this package."""


def require(condition: object, message: str) -> None:
    """Raise Malformed with ``message`` unless ``condition`` holds."""
    if not condition:
        raise Malformed(message)


class Budget:
    """Steps that are left."""

    def __init__(self, steps: int = STEPS_MAX, *, check: Callable[[], None] = lambda: None) -> None:
        """``check`` is called at each step and may raise."""
        self._left = steps
        self._check = check

    def spend(self, steps: int = 1) -> None:
        """Raises Malformed when there are none left."""
        self._left -= steps
        self._check()
        if self._left < 0:
            raise Malformed("it has more files, or more pieces of files, than are looked at")


class Cache(Generic[K]):
    """Blocks of bytes that were read lately."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._blocks: OrderedDict[K, bytes] = OrderedDict()

    def get(self, key: K) -> bytes | None:
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
        return found

    def put(self, key: K, block: bytes) -> bytes:
        """Keep ``block``, of which there is none yet, and return it."""
        self._blocks[key] = block
        self._size += len(block)
        while self._size > self._size_max and len(self._blocks) > 1:
            self._size -= len(self._blocks.popitem(last=False)[1])
        return block
