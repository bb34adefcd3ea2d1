"""Selections in a pane: characters, whole lines, or a rectangle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

from quicksand_vt import Lines, Position, Span, block_text, line_at, selected_text, word_at

if TYPE_CHECKING:
    from quicksand_vt import Terminal


class Shape(Enum):
    CHARACTERS = "characters"
    LINES = "lines"
    """Whole lines, with all their wrapped rows."""
    BLOCK = "block"


@dataclass(frozen=True, eq=False)
class Selection:
    """A selection from its anchor to the cursor, including both."""

    lines: Lines
    """The lines that it is a part of."""
    anchor: Position
    cursor: Position
    shape: Shape = Shape.CHARACTERS

    @classmethod
    def of_word(cls, lines: Lines, position: Position) -> Selection:
        """Returns a selection of the word at a position."""
        start, end = word_at(lines, position)
        return cls(lines, start, end._replace(x=end.x - 1))

    def to(self, cursor: Position) -> Selection:
        """Returns the selection up to another position."""
        return replace(self, cursor=cursor)

    def swapped(self) -> Selection:
        """Returns the selection with anchor and cursor exchanged."""
        return replace(self, anchor=self.cursor, cursor=self.anchor)

    @cached_property
    def span(self) -> Span:
        """The selected cells; meaningless for a block."""
        first, last = sorted((self.anchor, self.cursor))
        if self.shape is Shape.LINES:
            return Span(line_at(self.lines, first).start, line_at(self.lines, last).end)
        cells = self.lines.cells(last.line)
        wide = last.x + 1 < len(cells) and not cells[last.x + 1]
        return Span(first, last._replace(x=last.x + 1 + wide))

    @property
    def text(self) -> str:
        """The selected text; wrapped rows are joined, except in a block."""
        if self.shape is Shape.BLOCK:
            return block_text(self.lines, self.anchor, self.cursor)
        return selected_text(self.lines, self.span)

    def columns(self, number: int) -> range:
        """Returns the selected columns of a line."""
        if self.shape is Shape.BLOCK:
            top, bottom = sorted((self.anchor.line, self.cursor.line))
            left, right = sorted((self.anchor.x, self.cursor.x))
            return range(left, right + 1) if top <= number <= bottom else range(0)
        return columns_of(self.span, number, self.lines.columns)


def columns_of(span: Span, number: int, columns: int) -> range:
    """Returns the columns of a line of ``columns`` cells that are in a span."""
    start, end = span
    if not start.line <= number <= end.line:
        return range(0)
    first = start.x if number == start.line else 0
    return range(first, end.x if number == end.line else columns)


def told_size(text: str) -> str:
    """Returns the size of a text in words."""
    lines = text.count("\n") + 1
    amount = f"{len(text)} character" + ("s" if len(text) != 1 else "")
    return f"{lines} lines, {amount}" if lines > 1 else amount


class Highlight:
    """A selection on a live terminal. The scrollback never changes; lines on the screen are
    compared."""

    def __init__(self, selection: Selection, terminal: Terminal) -> None:
        self.selection = selection
        ends = (selection.anchor.line, selection.cursor.line)
        if selection.shape is not Shape.BLOCK:
            ends = (selection.span.start.line, selection.span.end.line)
        self._numbers = range(max(min(ends), terminal.screen_line), max(ends) + 1)
        self._texts = self._texts_in(selection.lines)
        self._layout = (terminal.columns, terminal.is_alternate)

    def holds(self, terminal: Terminal) -> bool:
        """Whether the selected text is still in its place."""
        layout = (terminal.columns, terminal.is_alternate)
        return layout == self._layout and self._texts_in(terminal) == self._texts

    def _texts_in(self, lines: Lines) -> list[str]:
        return [lines.text(number) for number in self._numbers]
