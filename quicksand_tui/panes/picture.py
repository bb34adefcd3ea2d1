"""What a pane looks like, row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.cache import LRUCache
from textual.strip import Strip

from quicksand_tui.panes.link import LinkState
from quicksand_tui.panes.selection import columns_of
from quicksand_tui.panes.strips import joined, line_strip, painted, reversed_at
from quicksand_tui.terminal import CursorShape

if TYPE_CHECKING:
    from quicksand_tui.panes.copy_mode import CopyMode
    from quicksand_tui.panes.pane import Pane

STRIPS_MAX = 1024

NOT_REVERSED = Style(reverse=False)
UNDERLINED = Style(underline=True)


class Picture:
    """Draws the rows of a pane, and remembers lines of its terminal that did not change."""

    def __init__(self, pane: Pane) -> None:
        self._pane = pane
        self._strips: LRUCache[int, Strip] = LRUCache(STRIPS_MAX)
        """By number of the line."""
        self._base: Style | None = None
        """The pane's own style: finding it out takes longer than drawing a line."""

    def forget(self, numbers: Iterable[int]) -> None:
        """These lines have changed."""
        for number in numbers:
            self._strips.discard(number)

    def forget_all(self) -> None:
        self._strips.clear()
        self._base = None

    def row(self, y: int) -> Strip:
        """The row ``y`` of the pane."""
        pane = self._pane
        number = pane.top + y
        if pane.copy_mode is not None:
            return self._copy_row(pane.copy_mode, number, last=y == pane.size.height - 1)
        cursor = pane.terminal.cursor
        is_open = pane.status.state is LinkState.OPEN
        if y == 0 and not is_open:
            return self._message()
        strip = self._marked_line(number)
        if is_open and cursor.visible and cursor.line == number:
            return self._with_cursor(strip, cursor.x, cursor.shape)
        return strip

    def _marked_line(self, number: int) -> Strip:
        found = self._strips.get(number)
        if found is not None:
            return found
        strip = self._line(number)
        if (highlight := self._pane.copying.highlight) is not None:
            selected = highlight.selection.columns(number)
            strip = painted(strip, [(selected, self._style("pane--selection"))])
        self._strips.set(number, strip)
        return strip

    def _line(self, number: int) -> Strip:
        pane = self._pane
        if self._base is None:
            self._base = pane.rich_style
        runs = pane.lines.line(number)
        return line_strip(runs, pane.size.width, self._base, pane.terminal.link)

    def _copy_row(self, mode: CopyMode, number: int, *, last: bool) -> Strip:
        """A row in copy mode, with all that is marked in it."""
        if last and (bar := mode.bar):
            return self._bar(bar, typed=mode.prompt is not None)
        strip = self._line(number)
        if mode.selection is not None:
            selected = mode.selection.columns(number)
            strip = painted(strip, [(selected, self._style("pane--selection"))])
        if matches := mode.matches_on(number):
            match, found = self._style("pane--match"), self._style("pane--found")
            marks = [
                (
                    columns_of(span, number, mode.lines.columns),
                    found if span.start == mode.cursor else match,
                )
                for span in matches
            ]
            strip = painted(strip, joined(marks))
        return reversed_at(strip, mode.cursor.x) if mode.cursor.line == number else strip

    def _bar(self, text: str, *, typed: bool) -> Strip:
        width = self._pane.size.width
        style = self._pane.get_component_rich_style("pane--bar")
        # Of what is typed, the end is seen.
        while typed and cell_len(text) >= width > 1:
            text = text[1:]
        strip = Strip([Segment(text, style)]).adjust_cell_length(width, style)
        return self._with_cursor(strip, cell_len(text)) if typed else strip

    def _style(self, kind: str) -> Style:
        return self._pane.get_component_rich_style(kind) + NOT_REVERSED

    def _with_cursor(self, strip: Strip, x: int, shape: CursorShape = CursorShape.BLOCK) -> Strip:
        x = min(x, self._pane.size.width - 1)
        if self._pane.has_focus and shape is CursorShape.BLOCK:
            return reversed_at(strip, x)
        return painted(strip, [(range(x, x + 1), UNDERLINED)])

    def _message(self) -> Strip:
        status, pane = self._pane.status, self._pane
        text = status.text or f"{status.state.value}…"
        style = pane.get_component_rich_style("pane--message")
        return Strip([Segment(f" {text} ", style)]).adjust_cell_length(
            pane.size.width, pane.rich_style
        )
