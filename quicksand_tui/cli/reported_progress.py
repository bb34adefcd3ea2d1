"""The progress of long work, which the work reports and `progress_display` shows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand.base.progress import WHOLE

from quicksand_tui.model.pace import Pace
from quicksand_tui.verbs.call import stage_text

if TYPE_CHECKING:
    from quicksand_tui.verbs.call import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The progress of some work at one moment."""

    text: str
    """The work and its object. It may contain text of a guest, not cleaned."""
    stage: str = ""
    """The stage that ``done`` and ``total`` count; rate and time left start anew with it."""
    done: int = 0
    total: int = 0
    """The end of the count; 0 if unknown."""
    doing: str = ""
    """The work without its object; "" if that does not change."""
    step: int = 0
    steps: int = 0
    """Step ``step`` of ``steps``; 0 if unknown."""
    in_bytes: bool = True
    """Whether ``done`` and ``total`` are bytes."""
    share: float | None = None
    """The share of the whole that is done, from 0 to 1, if all stages have one count."""
    left_s: float = field(default=0.0, compare=False)
    """The seconds that the rest of the whole takes, as far as can be told; 0 if it cannot."""


class Whole:
    """Follows work whose stages have one count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pace = Pace(clock())
        self._ends = 0.0
        self.share: float | None = None

    def take(self, done: int, total: int) -> None:
        """Takes the progress, if it is counted of the whole."""
        self.share = done / total if total == WHOLE else None
        if self.share is not None:
            self._ends = self._pace.take(self.share, self._clock())

    @property
    def left_s(self) -> float:
        """The seconds that the rest takes; 0 if that cannot be told."""
        return max(0.0, self._ends - self._clock()) if self.share is not None else 0.0


class StartProgress:
    """Follows the start of a sandbox. Its `stage` serves as the sandbox's ``progress_callback``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = "starting"
        self._doing = ""
        self._step = self._steps = 0
        self._whole = Whole()

    def stage(self, name: str, done: int, total: int) -> None:
        self._whole.take(done, total)
        is_steps = self._whole.share is None
        self._stage = self._doing = stage_text(name)
        self._step, self._steps = (done + 1, total) if is_steps else (0, 0)
        if self._steps:
            self._stage += f" ({self._step} of {total})"

    def look(self) -> Standing:
        return Standing(
            text=f"{self._name}: {self._stage}",
            doing=self._doing,
            step=self._step,
            steps=self._steps,
            share=self._whole.share,
            left_s=self._whole.left_s,
        )


class Rate:
    """Follows work that moves bytes: `report` takes the stage, and the bytes done and in all;
    `take` the progress of a verb."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._stage = ""
        self._done = self._total = 0

    def report(self, stage: str, done: int, total: int) -> None:
        self._stage, self._done, self._total = stage_text(stage), done, total

    def take(self, progress: Progress) -> None:
        self.report(progress.stage, progress.done, progress.total)

    def look(self) -> Standing:
        """Returns the progress now."""
        stage = self._stage if self._total else ""
        return Standing(
            text=f"{self._title}: {stage}" if stage else self._title,
            stage=stage,
            doing=stage,
            done=self._done,
            total=self._total,
        )
