"""What must hold of a terminal whatever came in, and what tells two terminals apart."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from quicksand_vt import Terminal
from quicksand_vt.cell_rows import BLANK, CLUSTERS, NO_WRAP, SHORT_WRAP, SIMPLE, Row
from quicksand_vt.grid import Grid
from quicksand_vt.packing import Packed, Packer
from quicksand_vt.style import PLAIN
from quicksand_vt.width import CODE_POINTS_MAX, char_width, cluster_width


def check_sound(terminal: Terminal) -> None:
    """Everything is as the docstrings say."""
    screen = terminal._screen
    for grid in (screen.main, screen.alternate):
        check_grid(grid, screen.packer)
        assert (grid.columns, grid.height) == (terminal.columns, terminal.rows)
    cursor = screen.cursor
    assert 0 <= cursor.x < terminal.columns
    assert 0 <= cursor.y < terminal.rows
    assert not cursor.pending or cursor.x in (terminal.columns - 1, screen.right - 1)
    assert 0 <= screen.top < screen.end <= terminal.rows
    assert 0 <= screen.left < screen.right - 1 < terminal.columns
    assert screen.has_sides == ((screen.left, screen.right) != (0, terminal.columns))
    for grid in (screen.main, screen.alternate):
        assert grid.open_columns == (0 if screen.has_sides else terminal.columns)
    assert len(screen.scrollback) <= screen.scrollback.limit
    for number in range(terminal.first_line, terminal.end_line):
        cells, runs = terminal.cells(number), terminal.line(number)
        assert len(cells) <= terminal.columns
        assert sum(run.columns for run in runs) <= terminal.columns
        assert "".join(run.text for run in runs).startswith("".join(cells))
    assert len(terminal.take_replies()) <= 4096


def check_grid(grid: Grid, packer: Packer) -> None:
    assert len(grid.rows) == grid.height
    for row in grid.rows:
        check_row(row, grid.columns)
        check_packing(row, packer)


def check_row(row: Row, columns: int) -> None:
    assert len(row.cells) == len(row.styles) == columns
    assert all(cell == BLANK for cell in row.cells[row.used :])
    assert all(style is PLAIN or style == PLAIN for style in row.styles[row.styled :])
    for x, cell in enumerate(row.cells):
        if cell:
            assert len(cell) <= CODE_POINTS_MAX
            assert not any(char < " " or "\x7f" <= char < "\xa0" for char in cell)
            second = x + 1 < columns and not row.cells[x + 1]
            assert char_width(cell[0]) <= 1 + second
            assert cluster_width(cell) >= 1 + second
            assert row.kind == CLUSTERS or len(cell) == 1
            assert row.kind != SIMPLE or not second
        else:
            assert x > 0
            assert row.cells[x - 1]


def check_packing(row: Row, packer: Packer) -> None:
    """What goes into the scrollback comes out again."""
    back = packer.unpack_row(Packed(*packer.pack(row)), len(row.cells))
    if row.wrap == SHORT_WRAP:
        assert back.cells[:-1] == row.cells[:-1]
        assert back.styles[:-1] == row.styles[:-1]
    else:
        assert back.cells == row.cells
        assert back.styles == row.styles
    assert (back.wrap, back.mark) == (row.wrap, row.mark)
    assert row.wrap == NO_WRAP or row.cells


def picture(terminal: Terminal) -> dict[str, Any]:
    """All that can be seen of it, and what is taken from it."""
    numbers = range(terminal.first_line, terminal.end_line)
    return {
        "lines": [terminal.line(number) for number in numbers],
        "cells": [terminal.cells(number) for number in numbers],
        "wraps": [terminal.is_wrapped(number) for number in numbers],
        "marks": [terminal.mark(number) for number in numbers],
        "numbers": numbers,
        "cursor": terminal.cursor,
        "pending": terminal._screen.cursor.pending,
        "modes": asdict(terminal.modes),
        "title": terminal.title,
        "cwd": terminal.cwd,
        "colours": terminal.colours.changed,
        "replies": terminal.take_replies(),
        "events": terminal.take_events(),
    }
