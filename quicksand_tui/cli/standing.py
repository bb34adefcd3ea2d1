"""The progress of long work: what the work reports, and `progress` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.verbs.stages import stage_text

if TYPE_CHECKING:
    from quicksand_tui.verbs.record import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The progress of some work at one moment."""

    text: str
    """What is being done, and to what. It may contain text of a guest, not cleaned."""
    stage: str = ""
    """The stage that ``done`` and ``total`` count. With a new stage, rate and time left start
    anew."""
    done: int = 0
    total: int = 0
    """0 if unknown."""
    doing: str = ""
    """What is being done, without to what; "" if that does not change."""
    step: int = 0
    steps: int = 0
    """Step ``step`` of ``steps``; 0 if unknown."""
    in_bytes: bool = True
    """Whether ``done`` and ``total`` are bytes."""


class StartProgress:
    """Follows the start of a sandbox. Its `stage` serves as the sandbox's ``progress_callback``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = "starting"
        self._doing = ""
        self._step = self._steps = 0

    def stage(self, name: str, done: int, total: int) -> None:
        self._doing, self._step, self._steps = stage_text(name), done + 1, total
        self._stage = f"{self._doing} ({self._step} of {total})"

    def look(self) -> Standing:
        return Standing(
            text=f"{self._name}: {self._stage}",
            doing=self._doing,
            step=self._step,
            steps=self._steps,
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
