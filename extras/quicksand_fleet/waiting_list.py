"""Sandboxes that wait for a place in the fleet, as other programs see them.

Each is an empty file that its process holds locked: it ends with that process at the latest.
"""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.errors import StateError
from quicksand.extending import (
    HEX32,
    Paths,
    fleet_dir,
    give_back,
    is_locked,
    lock_within,
    make_private_dir,
    map_os_errors,
    try_named_lock,
)

WAITING_MAX = 5000
"""The most waiting sandboxes that are counted."""
LOCK_WAIT_S = 1.0


class WaitingList:
    """The programs of this user that wait on this machine. All methods block."""

    def __init__(self, paths: Paths) -> None:
        self.place = fleet_dir(paths) / "waiting"

    def join(self) -> tuple[Path, int]:
        """Show this program as waiting; the result is for `leave`. Raises HostError, StateError."""
        path = make_private_dir(self.place) / os.urandom(16).hex()
        with map_os_errors(path):
            descriptor = lock_within(path, LOCK_WAIT_S, take=try_named_lock)
        if descriptor is None:
            raise StateError(f"{path} is locked by somebody else")
        return path, descriptor

    def leave(self, path: Path, descriptor: int) -> None:
        """Wait no longer."""
        give_back(path, descriptor)

    def count(self) -> int:
        """Return the number of waiting programs. Files whose process has ended are removed. Raises
        OSError."""
        try:
            found = sorted(self.place.iterdir())[:WAITING_MAX]
        except FileNotFoundError:
            return 0
        return sum(self._waits(path) for path in found if HEX32.fullmatch(path.name))

    def _waits(self, path: Path) -> bool:
        if is_locked(path):
            return True
        descriptor = try_named_lock(path)
        if descriptor is not None:
            give_back(path, descriptor)
        return descriptor is None
