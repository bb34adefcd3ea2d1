"""A row of the screen: cells with their styles, and whether it wraps into the next row.

A cell holds a character with its combining characters, as a string. A wide character is in the
first of its two cells; the second holds the empty string.
"""

from __future__ import annotations

from enum import IntFlag
from itertools import groupby
from typing import Final, NamedTuple

from quicksand_vt.style import PLAIN, Attribute, Style

BLANK: Final = " "

NO_WRAP: Final = 0
FULL_WRAP: Final = 1
"""The line continues in the next row."""
SHORT_WRAP: Final = 2
"""The line continues, and the last column is empty because a wide character did not fit."""

SIMPLE: Final = 0
"""Every cell of the row holds one narrow character."""
WIDE: Final = 1
"""Some cells may hold wide characters."""
CLUSTERS: Final = 2
"""Some cells may hold several characters."""


class Mark(IntFlag):
    """A shell's marks on a row with OSC 133 (semantic prompts)."""

    PROMPT = 1
    """A prompt begins here."""
    COMMAND = 2
    """The user's input begins here."""
    OUTPUT = 4
    """The command's output begins here."""


class Piece(NamedTuple):
    """A copy of some cells of a row."""

    cells: list[str]
    styles: list[Style]
    kind: int
    pictured: bool = False


class Run(NamedTuple):
    """Adjacent cells with one style."""

    text: str
    style: Style
    columns: int


class Row:
    """One row of the screen. The lists are as long as the screen is wide; objects are few, because
    Python's cyclic garbage collector walks through each."""

    __slots__ = ("cells", "dirty", "kind", "mark", "pictured", "styled", "styles", "used", "wrap")

    def __init__(self, columns: int) -> None:
        self.cells = [BLANK] * columns
        self.styles = [PLAIN] * columns
        self.used = 0
        """Every cell from this column on is blank."""
        self.styled = 0
        """Every style from this column on is `PLAIN`."""
        self.kind = SIMPLE
        self.wrap = NO_WRAP
        self.mark = 0
        """Bits of `Mark`."""
        self.pictured = False
        """Some cells may show parts of pictures."""
        self.dirty = True
        """The row changed since the damage was taken."""

    def clear(self, blank: Style) -> None:
        """Blanks the row, and resets its flags."""
        columns = len(self.cells)
        if self.used:
            self.cells = [BLANK] * columns
            self.used = 0
        if self.styled or blank is not PLAIN:
            self.styles = [blank] * columns
            self.styled = 0 if blank is PLAIN else columns
        self.kind = SIMPLE
        self.wrap = NO_WRAP
        self.mark = 0
        self.pictured = False
        self.dirty = True

    def cut(self, x: int) -> None:
        """Makes sure that a character begins at column ``x``: a wide one across it becomes
        blanks."""
        if 0 < x < len(self.cells) and not self.cells[x]:
            self.cells[x - 1] = self.cells[x] = BLANK

    def erase(self, start: int, end: int, blank: Style) -> None:
        """Blanks the columns from ``start`` to before ``end``."""
        if start >= end:
            return
        self._cut_around(start, end)
        columns = len(self.cells)
        self.cells[start:end] = BLANK * (end - start)
        if end >= self.used:
            self.used = min(self.used, start)
        if start < self.styled or blank is not PLAIN:
            self.styles[start:end] = [blank] * (end - start)
            if blank is not PLAIN:
                self.styled = max(self.styled, end)
            elif end >= self.styled:
                self.styled = start
        if end == columns:
            self.wrap = NO_WRAP
        self.dirty = True

    def erase_unprotected(self, start: int, end: int, blank: Style) -> None:
        """Does `erase`, but leaves cells whose style is protected."""
        self._cut_around(start, end)
        styles, protected = self.styles, int(Attribute.PROTECTED)
        gone = [x for x in range(start, end) if not styles[x].attributes & protected]
        if len(gone) == end - start:
            self.erase(start, end, blank)
            return
        # Both halves of a wide character have one style.
        for x in gone:
            self.cells[x], styles[x] = BLANK, blank
        if blank is not PLAIN:
            self.styled = max(self.styled, end)
        self.dirty = True

    def insert(self, x: int, count: int, blank: Style, end: int) -> None:
        """Moves the cells from column ``x`` to before ``end`` to the right by ``count``, inserting
        blanks."""
        count = min(count, end - x)
        self._cut_around(x, end - count)
        self._cut_around(end, end)
        self.cells[x:end] = [BLANK] * count + self.cells[x : end - count]
        self.styles[x:end] = [blank] * count + self.styles[x : end - count]
        self._moved(blank)

    def delete(self, x: int, count: int, blank: Style, end: int) -> None:
        """Deletes ``count`` cells at column ``x``, adding blanks before ``end``."""
        count = min(count, end - x)
        self._cut_around(x, x + count)
        self._cut_around(end, end)
        self.cells[x:end] = self.cells[x + count : end] + [BLANK] * count
        self.styles[x:end] = self.styles[x + count : end] + [blank] * count
        self._moved(blank)

    def piece(self, start: int, end: int) -> Piece:
        """Returns a copy of the columns from ``start`` to before ``end``; halves of wide characters
        are blanks."""
        cells = self.cells[start:end]
        if self.kind != SIMPLE and cells:
            if not cells[0]:
                cells[0] = BLANK
            if end < len(self.cells) and not self.cells[end]:
                cells[-1] = BLANK
        return Piece(cells, self.styles[start:end], self.kind, self.pictured)

    def take(self, other: Row, start: int, end: int) -> None:
        """Copies the columns from ``start`` to before ``end`` of another row."""
        if self.kind != SIMPLE or other.kind != SIMPLE:
            self.put(start, other.piece(start, end))
            return
        self.cells[start:end] = other.cells[start:end]
        if self.styled > start or other.styled > start:
            self.styles[start:end] = other.styles[start:end]
            self.styled = max(self.styled, min(end, other.styled))
        self.used = max(self.used, min(end, other.used))
        self.pictured = self.pictured or other.pictured
        if end == len(self.cells):
            self.wrap = NO_WRAP
        self.dirty = True

    def put(self, start: int, piece: Piece) -> None:
        """Replaces the cells from column ``start`` on by a piece, which must fit."""
        end = start + len(piece.cells)
        self._cut_around(start, end)
        self.cells[start:end] = piece.cells
        self.styles[start:end] = piece.styles
        self.kind = max(self.kind, piece.kind)
        self.pictured = self.pictured or piece.pictured
        self.used, self.styled = max(self.used, end), max(self.styled, end)
        if end == len(self.cells):
            self.wrap = NO_WRAP
        self.dirty = True

    def show(self, start: int, numbers: range, blank: Style | None) -> None:
        """Shows the parts of a picture with these numbers from column ``start`` on, in cells that
        are blanked in this style, or that keep their characters."""
        end = start + len(numbers)
        if blank is not None:
            self.erase(start, end, blank)
        self._cut_around(start, end)
        styles = self.styles
        # The picture is the last field; `_replace` takes four times as long.
        make = Style._make
        styles[start:end] = [
            make((*style[:-1], number))
            for style, number in zip(styles[start:end], numbers, strict=True)
        ]
        self.styled = max(self.styled, end)
        self.pictured = self.dirty = True

    def _moved(self, blank: Style) -> None:
        self.used = len(self.cells)
        if self.styled or blank is not PLAIN:
            self.styled = len(self.cells)
        self.wrap = NO_WRAP
        self.dirty = True

    def _cut_around(self, start: int, end: int) -> None:
        if self.kind != SIMPLE:
            self.cut(start)
            self.cut(end)

    def resize(self, columns: int) -> None:
        """Cuts or fills the row on the right."""
        if columns < len(self.cells):
            self.cut(columns)
            del self.cells[columns:], self.styles[columns:]
            self.used, self.styled = min(self.used, columns), min(self.styled, columns)
        else:
            missing = columns - len(self.cells)
            self.cells += [BLANK] * missing
            self.styles += [PLAIN] * missing
        self.wrap = NO_WRAP
        self.dirty = True

    @property
    def is_blank(self) -> bool:
        columns = len(self.cells)
        return self.cells.count(BLANK) == self.styles.count(PLAIN) == columns

    def runs(self) -> list[Run]:
        return cell_runs(self.cells, self.styles)


def style_runs(styles: list[Style]) -> list[tuple[int, Style]]:
    """Returns runs of equal styles, as (number of cells, style)."""
    return [(len(list(group)), style) for style, group in groupby(styles)]


def cell_runs(cells: list[str], styles: list[Style]) -> list[Run]:
    """Returns cells and their styles as runs."""
    runs, start = [], 0
    for count, style in style_runs(styles):
        runs.append(Run("".join(cells[start : start + count]), style, count))
        start += count
    return runs
