"""The one clock of all panes: parses what their guests said, and has it drawn."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.panes.pane import Pane

FRAME_S = 1 / 30
"""Between two drawings of a pane."""

FLOOD_FRAME_S = 0.1
"""Likewise of one that floods, while another one has the focus: drawing is most of the work."""

PARSE_S = 0.005
"""Of one turn that parsing may take: keys are looked at between two turns."""

TYPING_PARSE_S = 0.001
"""Likewise while somebody types, who is to see it at once."""

TYPING_S = 0.1
"""After a key."""

TURNS = 12
"""Of the event loop between two of parsing: a key is handed from one queue to the next, and so is
what is drawn of it, one step in each turn."""


class FrameClock:
    """Works in small steps, so that a flood in one pane holds up neither keys nor other panes."""

    def __init__(
        self, panes: Callable[[], Sequence[Pane]], *, is_current: Callable[[Pane], bool]
    ) -> None:
        """``is_current`` tells the pane that the user works in."""
        self._panes = panes
        self._is_current = is_current
        self._wake = asyncio.Event()
        self._undrawn: set[Pane] = set()
        """Panes with output that is not drawn yet."""

    def wake(self) -> None:
        """There is output."""
        self._wake.set()

    async def run(self) -> None:
        """Go on until it is cancelled; with no output, this takes no time."""
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
        """Parse a little and draw what is due. Returns seconds until there is more to do; None if
        there is nothing."""
        panes = self._panes()
        behind = [pane for pane in panes if pane.is_behind]
        # What comes for the one that is typed into is mostly the echo.
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
        """Draw a pane if it is its time. Returns seconds until it is; None if all is drawn."""
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
