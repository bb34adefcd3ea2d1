"""Lines of a terminal as text: what searching, selecting and moving have in common."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from quicksand_tui.terminal.rows import BLANK

WORD_CHARACTERS: Final = frozenset("-_./~+@:%?&=#")
"""What belongs to a word besides letters and digits: for paths and addresses."""

ROWS_MAX: Final = 64
"""Rows of a line that are looked at as one; a guest may write one without an end."""


class Lines(Protocol):
    """What is needed of a terminal."""

    @property
    def columns(self) -> int: ...
    @property
    def first_line(self) -> int: ...
    @property
    def end_line(self) -> int: ...
    def cells(self, number: int) -> list[str]:
        """Strings by column; see `Terminal.cells`."""

    def text(self, number: int) -> str:
        """The characters of a line; see `Terminal.text`."""

    def is_wrapped(self, number: int) -> bool:
        """Whether the line goes on in the next."""

    def mark(self, number: int) -> int:
        """Bits of `Mark`."""


class Position(NamedTuple):
    """A cell: number of the line, and column from 0."""

    line: int
    x: int


class Span(NamedTuple):
    """Cells from ``start`` to before ``end``."""

    start: Position
    end: Position


def text_cells(lines: Lines, number: int) -> list[str]:
    """The cells of a line, without the blanks at its end unless it goes on in the next."""
    cells = lines.cells(number)
    if not lines.is_wrapped(number):
        while cells and cells[-1] == BLANK:
            cells.pop()
    return cells


def line_start(lines: Lines, number: int) -> int:
    """Where the line begins that ``number`` is part of."""
    while number > lines.first_line and lines.is_wrapped(number - 1):
        number -= 1
    return number


def line_end(lines: Lines, number: int) -> int:
    """The last number of the line that ``number`` is part of."""
    while number < lines.end_line - 1 and lines.is_wrapped(number):
        number += 1
    return number


class LogicalLine:
    """A line as it was written: rows that go on in the next, put together."""

    def __init__(self, lines: Lines, first: int, last: int) -> None:
        """Of the rows from ``first`` to ``last``."""
        self._lines = lines
        self._first = first
        self._texts = [lines.text(number) for number in range(first, last + 1)]
        self.text = "".join(self._texts)
        self._ends = list(accumulate(map(len, self._texts)))
        """How many characters there are up to the end of each row."""
        self._starts: dict[int, list[int]] = {}
        """Of rows that are not ASCII: how many characters there are up to the end of each cell."""

    def span(self, start: int, end: int) -> Span:
        """The cells of the characters from ``start`` to before ``end``, which are some."""
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
    """The rows of each line, the oldest first. One that never ends is cut into parts."""
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
    """Goes from character to character, also from line to line."""

    def __init__(self, lines: Lines, position: Position) -> None:
        """Begins at ``position``, or at the nearest character to it."""
        self._lines = lines
        self._go(min(max(position.line, lines.first_line), lines.end_line - 1))
        x = min(max(position.x, 0), max(0, len(self._cells) - 1))
        self.x = x - 1 if x > 0 and not self._cells[x] else x
        self.broke = False
        """The last step went to another line that is not the same one going on."""

    def _go(self, line: int) -> None:
        self.line = line
        self._cells = text_cells(self._lines, line)

    @property
    def position(self) -> Position:
        return Position(self.line, self.x)

    @property
    def end(self) -> Position:
        """Where the character ends."""
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
        """Go to the next character; False if there is none."""
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
        """Go to the character before; False if there is none."""
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
