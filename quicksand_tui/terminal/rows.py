"""A row of the screen: cells with their styles, and how it goes on in the next row.

A cell holds one character with all that joins it, as a string. A character of two columns is in the
first of its cells; the second holds the empty string.
"""

from __future__ import annotations

from enum import IntFlag
from itertools import groupby
from typing import Final, NamedTuple

from quicksand_tui.terminal.style import PLAIN, Style

BLANK: Final = " "

NO_WRAP: Final = 0
FULL_WRAP: Final = 1
"""The line goes on in the next row."""
SHORT_WRAP: Final = 2
"""Likewise; the last column is empty, as a character of two columns did not fit."""

SIMPLE: Final = 0
"""Every cell of a row has one character of one column."""
WIDE: Final = 1
"""Some may have one of two columns."""
CLUSTERS: Final = 2
"""Some may have several characters."""


class Mark(IntFlag):
    """What a shell says of a row with OSC 133 (semantic prompts)."""

    PROMPT = 1
    """A prompt begins here."""
    COMMAND = 2
    """What the user types begins here."""
    OUTPUT = 4
    """What the command writes begins here."""


class Run(NamedTuple):
    """Cells beside each other with one style."""

    text: str
    style: Style
    columns: int


class Row:
    """One row of the screen. Lists as long as the screen is wide; few objects, as Python's cyclic
    garbage collector walks through every one of them."""

    __slots__ = ("cells", "dirty", "kind", "mark", "styled", "styles", "used", "wrap")

    def __init__(self, columns: int) -> None:
        self.cells = [BLANK] * columns
        self.styles = [PLAIN] * columns
        self.used = 0
        """From this column on, every cell is blank."""
        self.styled = 0
        """From this column on, every style is `PLAIN`."""
        self.kind = SIMPLE
        self.wrap = NO_WRAP
        self.mark = 0
        """Bits of `Mark`."""
        self.dirty = True
        """Changed since the damage was taken."""

    def clear(self, blank: Style) -> None:
        """Make it as new."""
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
        self.dirty = True

    def cut(self, x: int) -> None:
        """Make sure that a character begins at column ``x``: of one that is cut in two, blanks are
        left."""
        if 0 < x < len(self.cells) and not self.cells[x]:
            self.cells[x - 1] = self.cells[x] = BLANK

    def erase(self, start: int, end: int, blank: Style) -> None:
        """Blank the columns from ``start`` to before ``end``."""
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

    def insert(self, x: int, count: int, blank: Style) -> None:
        """Move the cells from column ``x`` to the right by ``count``; blanks come in."""
        columns = len(self.cells)
        count = min(count, columns - x)
        self._cut_around(x, columns - count)
        self.cells[x:] = [BLANK] * count + self.cells[x : columns - count]
        self.styles[x:] = [blank] * count + self.styles[x : columns - count]
        self._moved(blank)

    def delete(self, x: int, count: int, blank: Style) -> None:
        """Move the cells behind ``count`` ones at column ``x`` there; blanks come in at the end."""
        count = min(count, len(self.cells) - x)
        self._cut_around(x, x + count)
        self.cells[x:] = self.cells[x + count :] + [BLANK] * count
        self.styles[x:] = self.styles[x + count :] + [blank] * count
        self._moved(blank)

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
        """Cut or fill on the right."""
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
    """How many cells beside each other have which style."""
    return [(len(list(group)), style) for style, group in groupby(styles)]


def cell_runs(cells: list[str], styles: list[Style]) -> list[Run]:
    """Cells and their styles as runs."""
    runs, start = [], 0
    for count, style in style_runs(styles):
        runs.append(Run("".join(cells[start : start + count]), style, count))
        start += count
    return runs
