"""Reads the saves while a screen shows them, and once for their number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.shown_saves import NO_SAVES, SavesView
from quicksand_tui.model.text import error_text

if TYPE_CHECKING:
    from quicksand_tui.door.service import EngineService


LOOK_EVERY_S = 0.5
"""Seconds between two looks."""
LOOK_WAIT_S = 5.0
"""The most seconds to wait until a look is shown."""


class SavesWatch:
    """Holds the last saves read. Lives on the UI's event loop; a thread reads."""

    def __init__(
        self,
        service: EngineService,
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
        """Futures that wait for a look that begins after them."""

    async def run(self) -> None:
        """Looks once, then regularly and when asked to, until no screen shows saves."""
        self.is_running = True
        loop = asyncio.get_running_loop()

        def told_there() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
                loop.call_soon_threadsafe(self._again.set)

        self._service.when_saves_told(told_there)
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
            there = self._is_wanted()
            view = await asyncio.to_thread(self._service.read_saves, fresh=fresh, there=there)
        except (OSError, OperationError) as error:
            # The saves stay as they were until a later look.
            view = replace(self.view, loaded=True, error=error_text(error))
        finally:
            self._release(lookers)
        if view != self.view:
            self.view = view
            self._changed()

    @staticmethod
    def _release(lookers: list[asyncio.Future[None]]) -> None:
        for looker in lookers:
            if not looker.done():
                looker.set_result(None)

    def refresh(self, *, fresh: bool = False) -> None:
        """Looks at once; ``fresh`` reads everything even if nothing seems to have changed."""
        self._fresh = self._fresh or fresh
        self._again.set()

    async def look(self) -> None:
        """Looks, and returns when the result is shown; at once if no screen shows saves."""
        if not self.is_running or not self._is_wanted():
            return
        looker = asyncio.get_running_loop().create_future()
        self._lookers.append(looker)
        self._again.set()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(looker, LOOK_WAIT_S)
