"""Rectangles of a screen, which are moved, copied, filled and erased, each row as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_vt.cell_rows import SIMPLE, Piece
from quicksand_vt.style import Style

if TYPE_CHECKING:
    from quicksand_vt.grid import Grid

Change = Callable[[Style], Style]


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle that lies on the screen; rows and columns from 0, ends exclusive."""

    top: int
    left: int
    end: int
    right: int

    @property
    def cells(self) -> int:
        """The number of cells in the box."""
        return max(0, self.end - self.top) * max(0, self.right - self.left)


def shift(grid: Grid, box: Box, count: int, blank: Style) -> None:
    """Moves the text of a box up by ``count`` rows, or down if it is negative; the rows that become
    free are blank. Nothing goes to the scrollback, as in xterm."""
    height = box.end - box.top
    count = max(-height, min(count, height))
    rows = grid.rows
    if count >= 0:
        for y in range(box.top, box.end - count):
            rows[y].take(rows[y + count], box.left, box.right)
        gone = range(box.end - count, box.end)
    else:
        for y in range(box.end - 1, box.top - count - 1, -1):
            rows[y].take(rows[y + count], box.left, box.right)
        gone = range(box.top, box.top - count)
    for y in gone:
        rows[y].erase(box.left, box.right, blank)


def insert_columns(grid: Grid, box: Box, count: int, blank: Style) -> None:
    """Moves the text of a box to the right by ``count`` columns, inserting blank ones."""
    for row in grid.rows[box.top : box.end]:
        row.insert(box.left, count, blank, box.right)


def delete_columns(grid: Grid, box: Box, count: int, blank: Style) -> None:
    """Moves the text of a box to the left by ``count`` columns, adding blank ones on the right."""
    for row in grid.rows[box.top : box.end]:
        row.delete(box.left, count, blank, box.right)


def copy(grid: Grid, box: Box, top: int, left: int) -> None:
    """Copies a box to the position ``top`` and ``left``, as far as it fits on the screen."""
    columns = min(box.right - box.left, grid.columns - left)
    height = min(box.end - box.top, grid.height - top)
    source = grid.rows[box.top : box.top + height]
    pieces = [row.piece(box.left, box.left + columns) for row in source]
    for y, piece in enumerate(pieces, top):
        grid.rows[y].put(left, piece)


def fill(grid: Grid, box: Box, char: str, style: Style) -> None:
    """Fills a box with a narrow character."""
    width = box.right - box.left
    piece = Piece([char] * width, [style] * width, SIMPLE)
    for row in grid.rows[box.top : box.end]:
        row.put(box.left, piece)


def erase(grid: Grid, box: Box, blank: Style, *, selective: bool) -> None:
    """Blanks a box; with ``selective``, all but its protected cells."""
    for row in grid.rows[box.top : box.end]:
        if selective:
            row.erase_unprotected(box.left, box.right, blank)
        else:
            row.erase(box.left, box.right, blank)


def restyle(grid: Grid, box: Box, change: Change) -> None:
    """Replaces each style of a box by the result of ``change``."""
    known: dict[Style, Style] = {}
    for row in grid.rows[box.top : box.end]:
        styles = row.styles[box.left : box.right]
        for style in set(styles).difference(known):
            known[style] = change(style)
        row.styles[box.left : box.right] = map(known.__getitem__, styles)
        row.styled = max(row.styled, box.right)
        row.dirty = True


def checksum(grid: Grid, box: Box) -> int:
    """Returns the checksum of the characters of a box: the negated sum of their code points, in 16
    bits. DEC's terminals add the attributes as well."""
    total = 0
    for row in grid.rows[box.top : box.end]:
        for cell in row.cells[box.left : box.right]:
            total += sum(map(ord, cell))
    return -total & 0xFFFF
