"""The clock of all panes, which parses the output of their guests and has the panes drawn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quicksand_tui.panes.pane import Pane

FRAME_S = 1 / 30
"""Seconds between two drawings of a pane."""

FLOOD_FRAME_S = 0.1
"""Seconds between two drawings of a flooding pane without the focus: drawing is most work."""

PARSE_S = 0.005
"""Seconds that parsing may take in one turn; keys are handled between turns."""

TYPING_PARSE_S = 0.001
"""Seconds of parsing in one turn while the user types, so that the echo shows at once."""

TYPING_S = 0.1
"""Seconds after a key for which the user counts as typing."""

TURNS = 12
"""Turns of the event loop between two turns of parsing: a key passes from queue to queue, one in
each turn, and so does its echo on the way to the screen."""


class FrameClock:
    """Works in small steps, so that a flood in one pane delays neither keys nor other panes."""

    def __init__(
        self, panes: Callable[[], Sequence[Pane]], *, is_current: Callable[[Pane], bool]
    ) -> None:
        """``is_current`` says whether a pane is the one that the user works in."""
        self._panes = panes
        self._is_current = is_current
        self._wake = asyncio.Event()
        self._undrawn: set[Pane] = set()
        """Panes with parsed output that is not drawn yet."""

    def wake(self) -> None:
        """Tells the clock that there is output."""
        self._wake.set()

    async def run(self) -> None:
        """Runs until it is cancelled; without output it takes no CPU time."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while (wait := self._turn()) is not None:
                if wait > 0:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), wait)
                    self._wake.clear()
                else:
                    for _ in range(TURNS):
                        await asyncio.sleep(0)

    def _turn(self) -> float | None:
        """Parses a little and draws the panes that are due. Returns the seconds until there is more
        to do; None if there is nothing."""
        panes = self._panes()
        behind = [pane for pane in panes if pane.is_behind]
        # First the pane that the user types into: its output is mostly the echo.
        behind.sort(key=lambda pane: not self._is_current(pane))
        now = time.monotonic()
        types = any(now - pane.typed < TYPING_S for pane in panes)
        self._parse(behind, now + (TYPING_PARSE_S if types else PARSE_S))
        self._undrawn |= set(behind)
        self._undrawn &= set(panes)
        waits = [wait for pane in list(self._undrawn) if (wait := self._draw(pane)) is not None]
        if any(pane.is_behind for pane in behind):
            return 0.0
        return min(waits, default=None)

    @staticmethod
    def _parse(behind: list[Pane], deadline: float) -> None:
        for pane in itertools.cycle(behind):
            if pane.is_behind:
                pane.digest()
            elif not any(other.is_behind for other in behind):
                return
            if time.monotonic() >= deadline:
                return

    def _draw(self, pane: Pane) -> float | None:
        """Draws a pane if it is due. Returns the seconds until it is; None if all is drawn."""
        floods = pane.is_behind and not self._is_current(pane)
        now = time.monotonic()
        due = pane.drawn + (FLOOD_FRAME_S if floods else FRAME_S)
        wait = max(due - now, pane.terminal.hold_s)
        if wait > 0:
            return wait
        pane.show_changes()
        pane.drawn = now
        if pane.is_behind:
            return 0.0
        self._undrawn.discard(pane)
        return None
