"""What is selected in a pane: characters, whole lines, or a rectangle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from quicksand_tui.terminal import (
    Lines,
    Position,
    Span,
    block_text,
    line_at,
    selected_text,
    word_at,
)


class Shape(Enum):
    CHARACTERS = "characters"
    LINES = "lines"
    """Whole lines, with the rows in which they go on."""
    BLOCK = "block"


@dataclass(frozen=True, eq=False)
class Selection:
    """From where it began to where the cursor is, both in it."""

    lines: Lines
    """Those that it was made in, or those that the terminal has now."""
    anchor: Position
    cursor: Position
    shape: Shape = Shape.CHARACTERS

    @classmethod
    def of_word(cls, lines: Lines, position: Position) -> Selection:
        """The word at a place."""
        start, end = word_at(lines, position)
        return cls(lines, start, end._replace(x=end.x - 1))

    def to(self, cursor: Position) -> Selection:
        """Up to another place."""
        return replace(self, cursor=cursor)

    def swapped(self) -> Selection:
        """With the cursor at its other end."""
        return replace(self, anchor=self.cursor, cursor=self.anchor)

    @cached_property
    def span(self) -> Span:
        """Its cells, unless it is a block."""
        first, last = sorted((self.anchor, self.cursor))
        if self.shape is Shape.LINES:
            return Span(line_at(self.lines, first).start, line_at(self.lines, last).end)
        cells = self.lines.cells(last.line)
        wide = last.x + 1 < len(cells) and not cells[last.x + 1]
        return Span(first, last._replace(x=last.x + 1 + wide))

    @property
    def text(self) -> str:
        """What is selected; rows of one line are put together, but not in a block."""
        if self.shape is Shape.BLOCK:
            return block_text(self.lines, self.anchor, self.cursor)
        return selected_text(self.lines, self.span)

    def columns(self, number: int) -> range:
        """The columns of a line that are selected."""
        if self.shape is Shape.BLOCK:
            top, bottom = sorted((self.anchor.line, self.cursor.line))
            left, right = sorted((self.anchor.x, self.cursor.x))
            return range(left, right + 1) if top <= number <= bottom else range(0)
        return columns_of(self.span, number, self.lines.columns)


def columns_of(span: Span, number: int, columns: int) -> range:
    """The columns of a line, which has so many, that are in a span."""
    start, end = span
    if not start.line <= number <= end.line:
        return range(0)
    first = start.x if number == start.line else 0
    return range(first, end.x if number == end.line else columns)


def told_size(text: str) -> str:
    """How much a text is, in words."""
    lines = text.count("\n") + 1
    amount = f"{len(text)} character" + ("s" if len(text) != 1 else "")
    return f"{lines} lines, {amount}" if lines > 1 else amount
