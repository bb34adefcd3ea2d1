"""The pixels of pictures that are kept: for one terminal, and for all of an app together."""

from __future__ import annotations

from typing import Final, Protocol
from weakref import WeakSet

PIXELS_MAX: Final = 4 << 20
"""Pixels that one terminal keeps, 16 MiB: two screens of 1920x1080."""
ALL_PIXELS_MAX: Final = 16 << 20
"""Pixels that all terminals keep together, 64 MiB."""


WAITING_MAX: Final = 4
"""The most pictures that wait to be decoded; others are refused, but for one of each terminal."""


class Keeper(Protocol):
    """Keeps pictures of one terminal."""

    @property
    def pixels(self) -> int:
        """The number of pixels that it keeps."""

    def drop_one(self) -> bool:
        """Drops the picture that is missed least; returns False if it has none."""


class Budget:
    """The pixels that several keepers may keep together. It is for one thread."""

    def __init__(self, each: int = PIXELS_MAX, together: int = ALL_PIXELS_MAX) -> None:
        self._each = each
        self._together = together
        self._keepers: WeakSet[Keeper] = WeakSet()
        self.waiting = 0
        """The number of pictures that wait to be decoded."""

    def join(self, keeper: Keeper) -> None:
        self._keepers.add(keeper)

    def make_room(self, keeper: Keeper, pixels: int) -> bool:
        """Has pictures dropped until this keeper may keep so many more pixels; returns False if
        that cannot be."""
        if pixels > min(self._each, self._together):
            return False
        while keeper.pixels + pixels > self._each:
            if not keeper.drop_one():
                return False
        while sum(one.pixels for one in self._keepers) + pixels > self._together:
            most = max(self._keepers, key=lambda one: one.pixels)
            if not most.drop_one():
                return False
        return True
