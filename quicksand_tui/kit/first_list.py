"""Draws the list of sandboxes into the outline while Textual is loading, at the cells where the
app's first frame will have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.kit.outline import BRAND, HEAD, Looks, at, boxes, frames, ink, sgr
from quicksand_tui.model.text import drawn_cells, plain
from quicksand_tui.views.counts import counts_text
from quicksand_tui.views.main_layout import HEAD_FROM, Needs, Part, Shape, needs_of
from quicksand_tui.views.sandbox_rows import (
    ORDERS,
    arrange_sandboxes,
    list_needs,
    plan_sandbox_columns,
    sandbox_row,
)
from quicksand_tui.views.tables import GUTTER, SCROLL_BAR, Fit, head_words, row_words
from quicksand_tui.views.tree_lines import tree_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

    from quicksand_tui.model.geometry import Rect
    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Words

TOP_COUNTS = 2 + len(BRAND) + 2
"""The first cell of the counts in the first line."""
TOP_USED = TOP_COUNTS + 4
"""Cells of the first line besides counts and host."""


def first_list(
    columns: int, rows: int, looks: Looks, shape: Shape, drawn: Needs, world: World
) -> str:
    """Returns the sequences that draw the sandboxes into the outline, which was drawn for the needs
    ``drawn``; draws the outline anew if the list changes it. "" if there is nothing to list, or no
    room."""
    if not world.sandboxes:
        return ""
    needs = needs_of(world, len(world.sandboxes), lambda view: tree_lines(view.tree))
    found = boxes(columns, rows, shape, needs)
    if Part.LISTS not in found:
        return ""
    same = found == boxes(columns, rows, shape, drawn)
    return "".join(
        (
            "" if same else frames(columns, rows, looks, shape, needs),
            _counts(world, columns, looks),
            _rows(found[Part.LISTS].place, world, looks),
            "\x1b[m",
        )
    )


def _counts(world: World, columns: int, looks: Looks) -> str:
    """Draws the numbers of sandboxes, beside the brand."""
    room = columns - TOP_USED
    text = counts_text(world, room)
    if drawn_cells(text) > room:
        return ""
    return f"{at(TOP_COUNTS, 0)}{sgr(looks.text, looks.background)}{_fit(looks)(text)}"


def _rows(box: Rect, world: World, looks: Looks) -> str:
    """Draws head and rows of the list into its box, as `LongTable` does."""
    width = box.width - 2 - (0 if looks.ascii else SCROLL_BAR)
    height = box.height - 2
    planned = plan_sandbox_columns(width - GUTTER, list_needs(world))
    if sum(column.cells for column in planned) > width - GUTTER:
        return ""
    lines, fit = [], _fit(looks)
    if height >= HEAD_FROM:
        lines.append(_line([(text, HEAD) for text, _ in head_words(planned, fit)], looks))
    views = arrange_sandboxes(world.sandboxes, "", ORDERS[0])
    for view in views[: max(0, height - len(lines))]:
        lines.append(_line(row_words(sandbox_row(view, world), planned, fit), looks))
    return "".join(f"{at(box.x + 1, box.y + 1 + y)}{line}" for y, line in enumerate(lines))


def _line(words: Iterable[Words], looks: Looks) -> str:
    """Draws words in the fewest bytes: the line may be slow."""
    colour = looks.text
    drawn = [sgr(colour, looks.background)]
    for text, role in words:
        wanted = looks.of(role)
        if wanted != colour and text.strip():
            drawn.append(ink(wanted))
            colour = wanted
        drawn.append(text)
    return "".join(drawn).rstrip(" ")


def _fit(looks: Looks) -> Fit:
    return plain if looks.ascii else str
