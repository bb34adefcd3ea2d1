"""Lines by number: positions in them, walking through them, and the scrollback."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple, Protocol

from quicksand_tui.terminal.packing import WRAP_BITS, Packed
from quicksand_tui.terminal.rows import BLANK

WORD_CHARACTERS: Final = frozenset("-_./~+@:%?&=#")
"""Characters of a word besides letters and digits, so that paths and URLs are words."""

ROWS_MAX: Final = 64
"""How many wrapped rows are treated as one line; a guest may write an endless one."""


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


BYTES_PER_LINE: Final = 1024
"""The average limit per row. A row of 120 columns with ten colours takes 400 bytes; a hostile one
takes many thousands."""

OVERHEAD: Final = 96
"""Bytes that Python takes for two objects and two references to them."""


class Scrollback:
    """Packed rows that have left the screen, the oldest first, at most ``limit`` of them and at
    most ``limit * BYTES_PER_LINE`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._most = limit * BYTES_PER_LINE
        self._size = 0
        """Bytes of all rows."""
        # Two queues, not one of pairs: the garbage collector skips strings and bytes.
        self._texts: deque[str | bytes] = deque()
        """UTF-8 if not ASCII: one emoji makes every character of a Python string take four
        bytes."""
        self._attributes: deque[bytes] = deque()
        self.first = 0
        """The number of the oldest line left: as many lines were dropped."""

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Packed:
        return stored_line(self._texts[index], self._attributes[index])

    def __iter__(self) -> Iterator[Packed]:
        return map(stored_line, self._texts, self._attributes)

    def push(self, text: str, attributes: bytes) -> None:
        """Adds the newest line, given by the fields of a `Packed`; drops the oldest ones over the
        limits."""
        stored = text if text.isascii() else text.encode()
        self._texts.append(stored)
        self._attributes.append(attributes)
        self._size += OVERHEAD + len(stored) + len(attributes)
        while len(self._texts) > self.limit or self._size > self._most:
            gone = len(self._texts.popleft()) + len(self._attributes.popleft())
            self._size -= OVERHEAD + gone
            self.first += 1

    def end_line(self) -> None:
        """Ends the newest line, so that it does not wrap into the screen."""
        if self._attributes:
            last = self._attributes[-1]
            self._attributes[-1] = bytes((last[0] & ~WRAP_BITS,)) + last[1:]

    def clear(self) -> None:
        self.first += len(self._texts)
        self._texts.clear()
        self._attributes.clear()
        self._size = 0

    def replace(self, lines: list[Packed]) -> None:
        """Replaces all lines; the oldest keeps its number."""
        first = self.first
        self.clear()
        self.first = first
        for packed in lines:
            self.push(*packed)

    def freeze(self) -> tuple[list[str | bytes], list[bytes]]:
        """Returns a copy of the stored texts and attributes; see `stored_line`."""
        return list(self._texts), list(self._attributes)


def stored_line(stored: str | bytes, attributes: bytes) -> Packed:
    """Returns a line from the text and attributes that `Scrollback.freeze` returned."""
    return Packed(stored if isinstance(stored, str) else stored.decode(), attributes)
