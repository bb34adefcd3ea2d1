"""Draws progress on a terminal with rich. Imported when it first draws: that takes some 60 ms."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Column
from rich.text import Text

from quicksand_tui.cli.output import is_unicode
from quicksand_tui.model.amounts import age_text, left_text, seconds_text, size_text
from quicksand_tui.model.text import clean, clip_middle, plain

if TYPE_CHECKING:
    from quicksand_tui.cli.reported_progress import Standing

BAR_WIDTH = 24

SHARE_WIDTH, RATE_WIDTH, TIME_WIDTH, ABOUT_WIDTH = 6, 14, 10, 16
"""The most cells of " 100 %", " 1023 MiB/s", " 119s left" and " about 119s left", each with the
space before it."""

TEXT_MIN = 20
"""The least cells for the text. With fewer, first the bar is left out and then the rate."""

_ONE_LINE = Column(no_wrap=True)

_Layouts = tuple[tuple[tuple[ProgressColumn, ...], int], ...]
"""Pairs of columns and the cells that all of them but the text take, the widest first."""


class _Console(Console):
    """A console that never hides the cursor, since a command that is stopped or killed could not
    show it again."""

    def show_cursor(self, show: bool = True) -> bool:
        return False


class _Share(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.percentage:.0f} %")


class _Rate(ProgressColumn):
    """The speed in bytes per second. Empty for work counted otherwise, and until rich knows it."""

    def render(self, task: Task) -> Text:
        if not task.fields["in_bytes"] or not task.speed:
            return Text("")
        return Text(f"{size_text(task.speed, wide=True)}/s")


class _Time(ProgressColumn):
    """The time left, or the time taken until rich knows it."""

    def render(self, task: Task) -> Text:
        if (left := task.time_remaining) is not None:
            return Text(f"{age_text(left, wide=True)} left")
        return Text(seconds_text(task.fields["seconds"]))


class _About(ProgressColumn):
    """The time left of a whole, told with its share, or the time taken."""

    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        return Text(
            left_text(left, wide=True) if left >= 1 else seconds_text(task.fields["seconds"])
        )


class Display:
    """A line on stderr that shows progress, from `draw` to `hide`."""

    def __init__(self) -> None:
        self._fancy = fancy = is_unicode(sys.stderr)
        # The text may come from a guest: it has been cleaned, and must never count as markup.
        text = TextColumn("{task.description}", markup=False, table_column=_ONE_LINE)
        bar = BarColumn(BAR_WIDTH, "bright_black", complete_style="cyan", finished_style="cyan")
        spinner = SpinnerColumn("dots" if fancy else "line", "cyan")
        share, rate, time = _Share(_ONE_LINE), _Rate(_ONE_LINE), _Time(_ONE_LINE)
        bytes_width = RATE_WIDTH + TIME_WIDTH
        self._uncounted: _Layouts = (
            ((spinner, text, time, rate), bytes_width + 2),
            ((spinner, text, time), TIME_WIDTH + 2),
        )
        self._counted: _Layouts = (
            ((text, bar, share, rate, time), BAR_WIDTH + 1 + SHARE_WIDTH + bytes_width),
            ((text, share, rate, time), SHARE_WIDTH + bytes_width),
            ((text, share, time), SHARE_WIDTH + TIME_WIDTH),
        )
        about = _About(_ONE_LINE)
        self._whole: _Layouts = (
            ((text, bar, share, about), BAR_WIDTH + 1 + SHARE_WIDTH + ABOUT_WIDTH),
            ((text, share, about), SHARE_WIDTH + ABOUT_WIDTH),
            ((text, share), SHARE_WIDTH),
        )
        self._progress = Progress(
            console=_Console(file=sys.stderr, force_terminal=True),
            auto_refresh=False,
            transient=True,
            # stdout may lead elsewhere than to this terminal; `output` removes the line before it
            # prints.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._stage = ""
        self._total = -1.0

    def draw(self, standing: Standing, seconds: float) -> None:
        """Shows the progress ``seconds`` after the work began."""
        progress = self._progress
        text = self._lay_out(standing)
        stage, done, total = standing.stage, float(standing.done), float(standing.total)
        if standing.share is not None:
            stage, done, total = "", standing.share, 1.0
        if (stage, total) != (self._stage, self._total):
            # Rate and time left start anew with each stage.
            self._stage, self._total = stage, total
            for task in progress.task_ids:
                progress.remove_task(task)
            is_in_bytes = standing.in_bytes and standing.share is None
            progress.add_task(
                text, total=total or None, in_bytes=is_in_bytes, left=0.0, seconds=0.0
            )
        progress.update(
            progress.task_ids[0],
            description=text,
            completed=done,
            left=standing.left_s,
            seconds=seconds,
        )
        if progress.live.is_started:
            progress.refresh()
        else:
            progress.start()

    def _lay_out(self, standing: Standing) -> str:
        """Chooses the columns that the terminal has room for; returns the text, cut to fit."""
        width = self._progress.console.width
        layouts = self._counted if standing.total else self._uncounted
        if standing.share is not None:
            layouts = self._whole
        fitting = (layout for layout in layouts if width - layout[1] >= TEXT_MIN)
        self._progress.columns, taken = next(fitting, layouts[-1])
        text = clip_middle(clean(standing.text), width - taken)
        return text if self._fancy else plain(text)

    def hide(self) -> None:
        """Removes the line; the next `draw` shows it again."""
        self._progress.stop()
