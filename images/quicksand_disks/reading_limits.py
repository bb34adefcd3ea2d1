"""Limits on what a hostile disk can make its reader do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sized
from typing import Generic, TypeVar

from quicksand_disks.errors import MalformedError

K = TypeVar("K")
V = TypeVar("V", bound=Sized)

STEPS_MAX = 10_000_000
"""The most names, extents and blocks that are read in one file system. A disk that is
full with half a million files needs a fifth of that; this many steps take about ten seconds."""


class Budget:
    """The steps that are left for reading one file system."""

    def __init__(self, steps: int = STEPS_MAX, *, check: Callable[[], None] = lambda: None) -> None:
        """``check`` is called at every step and may raise."""
        self._left = steps
        self._check = check

    def spend(self, steps: int = 1) -> None:
        """Use up ``steps``. Raises MalformedError when there are not enough left."""
        self._left -= steps
        self._check()
        if self._left < 0:
            raise MalformedError("it has more files, or more pieces of files, than are read")


class Cache(Generic[K, V]):
    """The most recently used blocks, at most ``size_max`` bytes of them by their lengths."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._size = 0
        self._blocks: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._blocks.get(key)
        if found is not None:
            self._blocks.move_to_end(key)
        return found

    def put(self, key: K, block: V) -> V:
        """Keep ``block`` under a key that is not in use yet, and return it."""
        self._blocks[key] = block
        self._size += len(block)
        while self._size > self._size_max and len(self._blocks) > 1:
            self._size -= len(self._blocks.popitem(last=False)[1])
        return block
