"""Lines by number: positions in them, and walking through them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from quicksand_vt.cell_rows import BLANK

WORD_CHARACTERS: Final = frozenset("-_./~+@:%?&=#")
"""Characters of a word besides letters and digits, so that paths and URLs are words."""

ROWS_MAX: Final = 64
"""How many wrapped rows are treated as one line; a program may write an endless one."""


class Lines(Protocol):
    """The lines of a terminal, or a copy of them."""

    @property
    def columns(self) -> int: ...
    @property
    def first_line(self) -> int: ...
    @property
    def end_line(self) -> int: ...
    def cells(self, number: int) -> list[str]:
        """Returns the strings of a line by column; see `Terminal.cells`."""

    def text(self, number: int) -> str:
        """Returns the characters of a line; see `Terminal.text`."""

    def is_wrapped(self, number: int) -> bool:
        """Whether the line continues in the next row."""

    def mark(self, number: int) -> int:
        """Bits of `Mark`."""


class Position(NamedTuple):
    """A cell, by the number of its line and its column from 0."""

    line: int
    x: int


class Span(NamedTuple):
    """The cells from ``start`` up to, not including, ``end``."""

    start: Position
    end: Position


def text_cells(lines: Lines, number: int) -> list[str]:
    """Returns the cells of a line, without trailing blanks unless it wraps."""
    cells = lines.cells(number)
    if not lines.is_wrapped(number):
        while cells and cells[-1] == BLANK:
            cells.pop()
    return cells


def line_start(lines: Lines, number: int) -> int:
    """Returns the first row of the wrapped line that row ``number`` is part of."""
    while number > lines.first_line and lines.is_wrapped(number - 1):
        number -= 1
    return number


def line_end(lines: Lines, number: int) -> int:
    """Returns the last row of the wrapped line that row ``number`` is part of."""
    while number < lines.end_line - 1 and lines.is_wrapped(number):
        number += 1
    return number


class LogicalLine:
    """A line as it was written: the joined text of its wrapped rows."""

    def __init__(self, lines: Lines, first: int, last: int) -> None:
        """Joins the rows from ``first`` to ``last``."""
        self._lines = lines
        self._first = first
        self._texts = [lines.text(number) for number in range(first, last + 1)]
        self.text = "".join(self._texts)
        self._ends = list(accumulate(map(len, self._texts)))
        """The number of characters up to the end of each row."""
        self._starts: dict[int, list[int]] = {}
        """For rows that are not ASCII, the number of characters up to the end of each cell."""

    def span(self, start: int, end: int) -> Span:
        """Returns the cells of the characters from ``start`` to before ``end``, at least one."""
        begin, last = self._position(start), self._position(end - 1)
        wide = not self._texts[last.line - self._first].isascii() and self._is_wide(last)
        return Span(begin, last._replace(x=last.x + 1 + wide))

    def _position(self, offset: int) -> Position:
        number = bisect_right(self._ends, offset)
        offset -= self._ends[number - 1] if number else 0
        line = self._first + number
        if self._texts[number].isascii():
            return Position(line, offset)
        ends = self._starts.get(number)
        if ends is None:
            ends = list(accumulate(map(len, text_cells(self._lines, line))))
            self._starts[number] = ends
        return Position(line, bisect_right(ends, offset))

    def _is_wide(self, position: Position) -> bool:
        ends = self._starts[position.line - self._first]
        return position.x + 1 < len(ends) and ends[position.x + 1] == ends[position.x]


def logical_lines(lines: Lines) -> Iterator[range]:
    """Yields the rows of each line, the oldest first, cut into parts of `ROWS_MAX` rows."""
    number = lines.first_line
    while number < lines.end_line:
        first = number
        while (
            number + 1 < lines.end_line
            and number + 1 - first < ROWS_MAX
            and lines.is_wrapped(number)
        ):
            number += 1
        number += 1
        yield range(first, number)


class Walk:
    """A walk from character to character, across lines."""

    def __init__(self, lines: Lines, position: Position) -> None:
        """Begins at ``position``, or at the nearest character."""
        self._lines = lines
        self._go(min(max(position.line, lines.first_line), lines.end_line - 1))
        x = min(max(position.x, 0), max(0, len(self._cells) - 1))
        self.x = x - 1 if x > 0 and not self._cells[x] else x
        self.broke = False
        """The last step crossed the end of a line that does not wrap."""

    def _go(self, line: int) -> None:
        self.line = line
        self._cells = text_cells(self._lines, line)

    @property
    def position(self) -> Position:
        return Position(self.line, self.x)

    @property
    def end(self) -> Position:
        """The position after the character."""
        wide = self.x + 1 < len(self._cells) and not self._cells[self.x + 1]
        return Position(self.line, self.x + 1 + wide)

    @property
    def kind(self) -> str:
        """``blank``, ``word``, or ``other``."""
        char = self._cells[self.x][:1] if self.x < len(self._cells) else BLANK
        if char == BLANK:
            return "blank"
        return "word" if char.isalnum() or char in WORD_CHARACTERS else "other"

    def forward(self) -> bool:
        """Goes to the next character; returns False if there is none."""
        x = self.end.x
        self.broke = False
        if x < len(self._cells):
            self.x = x
        elif self.line + 1 < self._lines.end_line:
            self.broke = not self._lines.is_wrapped(self.line)
            self._go(self.line + 1)
            self.x = 0
        else:
            return False
        return True

    def back(self) -> bool:
        """Goes to the previous character; returns False if there is none."""
        self.broke = False
        if self.x > 0:
            self.x -= 1
        elif self.line > self._lines.first_line:
            self._go(self.line - 1)
            self.broke = not self._lines.is_wrapped(self.line)
            self.x = max(0, len(self._cells) - 1)
        else:
            return False
        if self.x > 0 and not self._cells[self.x]:
            self.x -= 1
        return True
