"""Draws tables on a terminal with rich. Imported when one is drawn: that takes some 25 ms."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quicksand_tui.model.text import cells, clean

GAP = 2
"""Cells between two columns of a table."""

WHOLE_MAX = 16
"""The most cells of a column that is never folded: sizes, ages, states, digests."""

CELLS_MAX = 1000
"""The most table cells that are drawn. rich takes some 0.2 ms for each, and a list of ten thousand
saves has ninety thousand."""

COLUMN_STYLES = {"PROBLEM": "red", "REASON": "red", "DIGEST": "dim", "ID": "dim"}
WORD_STYLES = {"BAD": "red", "ok": "green", "whole": "green", "running": "green", "ended": "dim"}
"""Styles of the words in the column STATE."""


def draw_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> bool:
    """Draws a table on stdout, no wider than the terminal: long texts are folded within their
    columns.

    Returns False, with nothing drawn, where plain lines are better: if the table is so large that
    drawing takes long, or the terminal so narrow that even short texts would be cut.
    """
    if len(heads) * len(rows) > CELLS_MAX:
        return False
    # The texts may come from a guest: they have been cleaned, and must never count as markup.
    cleaned = [[clean(cell) for cell in row] for row in rows]
    widths = [max(map(cells, column)) for column in zip(heads, *cleaned, strict=True)]
    console = Console(file=sys.stdout, force_terminal=True)
    least = sum(min(width, WHOLE_MAX) for width in widths) + GAP * (len(heads) - 1)
    if least > console.width:
        return False
    # Styles apply to words and not to cells, so that the spaces after them can be cut off.
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="none")
    for head, width in zip(heads, widths, strict=True):
        table.add_column(Text.assemble((head, "bold")), no_wrap=width <= WHOLE_MAX, overflow="fold")
    for row in cleaned:
        is_sum = row[0] == "total"
        styles = ["bold" if is_sum else _style(*one) for one in zip(heads, row, strict=True)]
        table.add_row(*map(Text.assemble, zip(row, styles, strict=True)))
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())
    sys.stdout.flush()
    return True


def _style(head: str, cell: str) -> str:
    if head == "STATE":
        return WORD_STYLES.get(cell, "")
    return COLUMN_STYLES.get(head, "")
