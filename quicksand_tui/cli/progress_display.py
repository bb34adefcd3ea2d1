"""The progress of long work, as the work reports it, and the line on stderr that shows it: only on
a terminal, and only if the work takes more than a second."""

from __future__ import annotations

import asyncio
import contextlib
import math
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from quicksand.base.progress import WHOLE

from quicksand_tui.cli.output import columns_of, covering, has_colour, is_terminal, is_unicode, say
from quicksand_tui.model.amounts import age_text, left_text, seconds_text, size_text
from quicksand_tui.model.pace import Pace
from quicksand_tui.model.text import clean, clip_middle, plain
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
        self._step = self._steps = 0
        self._whole = Whole()

    def stage(self, name: str, done: int, total: int) -> None:
        self._whole.take(done, total)
        is_steps = self._whole.share is None
        self._stage = stage_text(name)
        self._step, self._steps = (done + 1, total) if is_steps else (0, 0)
        if self._steps:
            self._stage += f" ({self._step} of {total})"

    def look(self) -> Standing:
        return Standing(
            text=f"{self._name}: {self._stage}",
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
            done=self._done,
            total=self._total,
        )


class BuildProgress:
    """Shows the progress of a build: on a terminal in one line, elsewhere a line for each stage."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._stage = ""
        self._done = self._total = 0
        self._whole = Whole(clock)
        self._live = is_terminal(sys.stderr)

    def stage(self, name: str, done: int, total: int) -> None:
        self._whole.take(done, total)
        if name != self._stage and not self._live:
            say(clean(self._line(name)))
        self._stage, self._done, self._total = name, done, total

    def _line(self, stage: str) -> str:
        share, left = self._whole.share, self._whole.left_s
        told = stage if share is None else f"{share:4.0%} {stage}"
        return f"{told}, {left_text(left)}" if left >= 1 else told

    def look(self) -> Standing:
        return Standing(
            text=f"{self._name}: {self._stage}" if self._stage else self._name,
            stage=self._stage,
            done=self._done,
            total=self._total,
            in_bytes=False,
            share=self._whole.share,
            left_s=self._whole.left_s,
        )


PATIENCE_S = 1.0
TICK_S = 0.1


@contextlib.asynccontextmanager
async def shown(what: str | Callable[[], Standing]) -> AsyncIterator[None]:
    """Shows progress on one line of the terminal during the context, and removes the line at its
    end. ``what`` is a text, or returns the current progress. Raises the errors of drawing."""
    if not is_terminal(sys.stderr):
        yield
        return
    look = (lambda: Standing(text=what)) if isinstance(what, str) else what
    task = asyncio.create_task(_tick(look), name="quicksand-progress")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.result()  # raises if the drawing has failed


async def _tick(look: Callable[[], Standing]) -> None:
    began = time.monotonic()
    await asyncio.sleep(PATIENCE_S)  # most commands end before this
    line = Line()
    # The work does not fail when the terminal goes away.
    with contextlib.suppress(OSError), covering(line.hide):
        while True:
            line.draw(look(), time.monotonic() - began)
            await asyncio.sleep(TICK_S)


WIDTHS = {"spinner": 2, "bar": 25, "share": 6, "rate": 14, "time": 10, "about": 16}
"""The most cells of the parts of a line beside its text, with a space: " 100 %", " 1023 MiB/s",
" 119s left", " about 119s left"."""

SPARED = ("bar", "rate", "about")
"""The parts that a narrow terminal does without, in this order."""

TEXT_MIN = 20
"""The least cells for the text, as long as there are parts to be spared."""

RATE_S = 30.0
"""The last seconds of a stage, from which its rate is taken."""

SPINNER, PLAIN_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "-\\|/"
CYAN, GREY, NORMAL = "\x1b[36m", "\x1b[90m", "\x1b[0m"
ERASED = "\r\x1b[2K"
"""Goes to the beginning of the line, and erases it."""


class Line:
    """A line on stderr that shows progress, from `draw` to `hide`. The cursor stays visible, since
    a command that is stopped or killed could not show it again."""

    def __init__(self) -> None:
        self._fancy = is_unicode(sys.stderr)
        self._colour = has_colour(sys.stderr)
        self._counted = ("", -1)
        """The stage that `_seen` is of, and the end of its count."""
        self._seen: deque[tuple[float, int]] = deque()
        """The counts of the stage, and the seconds at which each was reached."""

    def draw(self, standing: Standing, seconds: float) -> None:
        """Shows the progress ``seconds`` after the work began."""
        columns = columns_of(sys.stderr)
        parts = self._parts(standing, seconds)
        for name in SPARED:
            if columns - sum(WIDTHS[part] for part in parts) < TEXT_MIN:
                parts.pop(name, None)
        # The text may come from a guest: it is cleaned, and cut so that all stays on one line.
        text = clip_middle(clean(standing.text), columns - 1 - sum(WIDTHS[part] for part in parts))
        text = text if self._fancy else plain(text)
        words = [parts.pop("spinner", ""), text, *parts.values()]
        self._write(ERASED + " ".join(word for word in words if word))

    def hide(self) -> None:
        """Removes the line; the next `draw` shows it again."""
        self._write(ERASED)

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def _parts(self, standing: Standing, seconds: float) -> dict[str, str]:
        """Returns what is told beside the text, in order: of the whole if its share is known, else
        of the stage, with the time left, or else the time taken."""
        took = seconds_text(seconds)
        if standing.share is not None:
            left = standing.left_s
            about = left_text(left, wide=True) if left >= 1 else took
            return {**self._share(standing.share), "about": about}
        speed = self._speed(standing, seconds)
        rate = f"{size_text(speed, wide=True)}/s" if standing.in_bytes and speed else ""
        if standing.total:
            if speed:
                left = math.ceil((standing.total - standing.done) / speed)
                took = f"{age_text(left, wide=True)} left"
            return {**self._share(standing.done / standing.total), "rate": rate, "time": took}
        frames = SPINNER if self._fancy else PLAIN_SPINNER
        frame = frames[int(seconds / TICK_S) % len(frames)]
        return {"spinner": self._in(CYAN, frame), "time": took, "rate": rate}

    def _share(self, share: float) -> dict[str, str]:
        width = WIDTHS["bar"] - 1
        full = min(width, round(width * share))
        glyph = "━" if self._fancy else "-"
        rest = self._in(GREY, glyph * (width - full)) if self._colour else " " * (width - full)
        return {"bar": self._in(CYAN, glyph * full) + rest, "share": f"{100 * share:.0f} %"}

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{NORMAL}" if self._colour and text else text

    def _speed(self, standing: Standing, seconds: float) -> float:
        """Returns how much of a stage is done in a second; 0 until that is known. Rate and time
        left start anew with each stage."""
        if self._counted != (standing.stage, standing.total):
            self._counted = (standing.stage, standing.total)
            self._seen.clear()
        if not self._seen or standing.done > self._seen[-1][1]:
            self._seen.append((seconds, standing.done))
        while self._seen[0][0] < self._seen[-1][0] - RATE_S:
            self._seen.popleft()
        (since, before), (until, now) = self._seen[0], self._seen[-1]
        return (now - before) / (until - since) if until > since else 0.0
