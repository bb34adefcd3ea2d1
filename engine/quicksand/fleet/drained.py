"""Which machines of a fleet take nothing new, as its record says: for all programs of this user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from quicksand.base.disk_changes import DiskChanges
from quicksand.base.effort import best_effort
from quicksand.base.paths import paths

LOOK_EVERY_S = 30.0
"""The longest time between two looks, where the system does not tell of changes."""


class Drained:
    """The names of these machines."""

    def __init__(
        self,
        read: Callable[[], frozenset[str]],
        write: Callable[[str, bool], None],
        changed: Callable[[], None],
    ) -> None:
        """``read`` and ``write`` know them on the disk; both block. Calls ``changed`` when others
        are drained than before."""
        self._read, self._write, self._changed = read, write, changed
        self.names = read()

    async def set(self, name: str, *, on: bool) -> None:
        """Drain a machine, or let it take new sandboxes again. Raises FleetError, HostError."""
        await asyncio.to_thread(self._write, name, on)
        await self.look_again()

    async def look_again(self) -> None:
        """Read them anew."""
        with best_effort("read which machines are drained", paths().engine_log):
            names = await asyncio.to_thread(self._read)
            if names != self.names:
                self.names = names
                self._changed()

    async def follow(self, place: Path) -> None:
        """Read them anew whenever a file in ``place`` has changed, until this is cancelled."""
        changes = DiskChanges()
        try:
            while True:
                if not changes.follow([place]):
                    await changes.wait(LOOK_EVERY_S)
                await self.look_again()
        finally:
            changes.close()
