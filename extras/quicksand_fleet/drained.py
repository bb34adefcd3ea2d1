"""The machines of a fleet that take no new sandboxes, as its record lists them for all programs of
this user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from quicksand.extending import DiskChanges, best_effort, paths

LOOK_EVERY_S = 30.0
"""The longest time in seconds between two looks, where the system does not report changes."""


class Drained:
    """The names of the drained machines."""

    def __init__(
        self,
        read: Callable[[], frozenset[str]],
        write: Callable[[str, bool], None],
        changed: Callable[[], None],
    ) -> None:
        """``read`` and ``write`` load and store the names on disk; both block. ``changed`` is
        called when the set of drained machines has changed."""
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
        """Read the names again whenever a file in ``place`` has changed, until cancelled."""
        changes = DiskChanges()
        try:
            while True:
                if not changes.follow([place]):
                    await changes.wait(LOOK_EVERY_S)
                await self.look_again()
        finally:
            changes.close()
