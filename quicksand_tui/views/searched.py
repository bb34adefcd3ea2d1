"""The columns that a table shows while a filter searches them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from quicksand_tui.views.rows import Column

NAMES = ("state", "name", "tag")
"""Columns that never give way to another."""
NAME_MIN = 14
"""Cells that a name keeps when another column needs room."""


def with_searched(
    planned: tuple[Column, ...], searched: Sequence[Column], width: int
) -> tuple[Column, ...]:
    """Returns the columns ``planned`` for ``width`` cells with those that a filter searches, so
    that the user sees why a row matches or not: the name gives way first, then the last columns."""
    missing = [c for c in searched if all(c.key != column.key for column in planned)]
    if not missing or not planned:
        return planned
    kept = list(planned)
    while True:
        lack = sum(column.cells for column in (*kept, *missing)) - width
        if lack <= 0:
            break
        at = next((n for n, column in enumerate(kept) if column.key == "name"), None)
        spare = max(0, kept[at].width - NAME_MIN) if at is not None else 0
        if at is not None and spare:
            kept[at] = replace(kept[at], width=kept[at].width - min(spare, lack))
            continue
        last = next((c for c in reversed(kept) if c.key not in NAMES), None)
        if last is None:
            break  # the table cuts columns that are too wide
        kept.remove(last)
    after = max((n for n, column in enumerate(kept, 1) if column.key in NAMES), default=0)
    return (*kept[:after], *missing, *kept[after:])
