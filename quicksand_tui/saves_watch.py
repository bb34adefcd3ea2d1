"""Looks at the saves while somebody sees them, and once where only their number is shown."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from quicksand_tui.all_saves import NO_SAVES, SavesView

if TYPE_CHECKING:
    from quicksand_tui.services import SavesService

LOOK_EVERY_S = 0.5
LOOK_WAIT_S = 5.0


class SavesWatch:
    """Holds the last look. Lives on the UI's event loop; looking is done in a thread."""

    def __init__(
        self,
        service: SavesService,
        *,
        is_wanted: Callable[[], bool],
        changed: Callable[[], None],
    ) -> None:
        self.view: SavesView = NO_SAVES
        self.is_running = False
        self._service = service
        self._is_wanted = is_wanted
        self._changed = changed
        self._again = asyncio.Event()
        self._fresh = False
        self._lookers: list[asyncio.Future[None]] = []
        """Wait for a look that begins after they asked."""

    async def run(self) -> None:
        """Look once; then now and then, and at once when asked to, until nobody wants it."""
        self.is_running = True
        try:
            while True:
                await self._look_once()
                if self._is_wanted():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._again.wait(), LOOK_EVERY_S)
                elif not self._again.is_set():
                    return
        finally:
            self.is_running = False
            self._release(self._lookers)

    async def _look_once(self) -> None:
        fresh, self._fresh = self._fresh, False
        self._again.clear()
        lookers, self._lookers = self._lookers, []
        try:
            view = await asyncio.to_thread(self._service.read_saves, fresh=fresh)
        finally:
            self._release(lookers)
        if view is not self.view:
            self.view = view
            self._changed()

    @staticmethod
    def _release(lookers: list[asyncio.Future[None]]) -> None:
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)

    def refresh(self, *, fresh: bool = False) -> None:
        """Look without waiting; ``fresh`` even where nothing seems to have changed."""
        self._fresh = self._fresh or fresh
        self._again.set()

    async def look(self) -> None:
        """Look, and return when it is shown; at once if nobody sees it."""
        if not self.is_running or not self._is_wanted():
            return
        looker = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        self._again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(looker, LOOK_WAIT_S)
