"""Draws rows of a table as runs of text with roles, for all that put them on the screen: the app's
tables, and the outline, which is drawn before Textual is imported."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quicksand_tui.model.text import clip, clip_middle, drawn_cells
from quicksand_tui.views.rows import Cell, Column, Row, Words

NOTE_MIN = 6
"""The least room in cells for a note and the gap before it."""

GUTTER = 2
"""Cells before the first column, for the mark."""
MARK = "◆"
MARK_ROLE = "mark"
"""The role of the mark; all others are those of `Cell`."""

SCROLL_BAR = 1
"""Cells beside the rows that are kept free for the scroll bar; in ASCII there is none."""

Fit = Callable[[str], str]
"""Makes a text fit for the terminal: `plain` in ASCII."""


def head_words(columns: Sequence[Column], fit: Fit) -> list[Words]:
    """Returns the head of a table."""
    words: list[Words] = [(" " * GUTTER, "")]
    for column in columns:
        words += cell_words(Cell(column.title), column, fit)
    return words


def row_words(
    row: Row, columns: Sequence[Column], fit: Fit, *, is_marked: bool = False
) -> list[Words]:
    """Returns a row of a table."""
    if row.line:
        return [(fit(text), role) for text, role in row.line]
    words = [(f"{fit(MARK)} ", MARK_ROLE) if is_marked else (" " * GUTTER, "")]
    for column in columns:
        words += cell_words(row.cells[column.key], column, fit)
    return words


def cell_words(cell: Cell, column: Column, fit: Fit) -> list[Words]:
    """Returns a cell, with the blanks around it, in exactly the cells of its column."""
    lead = [(fit(text), role) for text, role in cell.lead]
    width = max(0, column.width - sum(drawn_cells(text) for text, _ in lead))
    text = fit(_cut(cell, width)) if width else ""
    left = width - drawn_cells(text)
    pad = " " * left
    if column.right:
        return [(pad, ""), (text, cell.role), (" " * column.gap, "")]
    words = [*lead, (text, cell.role)]
    if cell.note and left >= NOTE_MIN:
        note = fit(clip(cell.note, left - 2))
        words.append((f"  {note}", "muted"))
        pad = " " * (left - 2 - drawn_cells(note))
    return [*words, (pad + " " * column.gap, "")]


def _cut(cell: Cell, width: int) -> str:
    """Returns a cell's text, cut to a column."""
    if cell.keeps_end:
        return cell.text[-width:]
    if not cell.gives_way:
        return clip(cell.text, width)
    beside = drawn_cells(cell.note) + 2 if cell.note else 0
    return clip_middle(cell.text, width - beside)
