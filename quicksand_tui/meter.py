"""How fast an operation is, and how often to tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quicksand_tui.services import Progress

TELL_EVERY_S = 0.15
PATIENCE_S = 1.0
"""Of one stage, before its rate is worth telling."""


class Meter:
    """Follows the progress of one operation; used by one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stage = ""
        self._told = self._began = 0.0
        self._begin = 0
        """Bytes that were done when the stage began."""

    def take(self, progress: Progress) -> float | None:
        """Its rate in bytes a second, 0 as long as that cannot be told; None if all this is too
        soon after the last."""
        now = self._clock()
        stage = f"{progress.step} {progress.stage}"
        if stage != self._stage:
            self._stage, self._began, self._begin = stage, now, progress.done
        elif now - self._told < TELL_EVERY_S:
            return None
        self._told = now
        spent = now - self._began
        return (progress.done - self._begin) / spent if spent >= PATIENCE_S else 0.0
