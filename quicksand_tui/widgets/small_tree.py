"""The tree of checkpoints on a few lines, for the details of a sandbox."""

from __future__ import annotations

from rich.cells import cell_len
from textual.content import Content

from quicksand_tui.text import clip
from quicksand_tui.tree_view import TreeLine, here_index

GAP = 2
AGE, SIZE = 4, 5
NOTE_MIN = 8
TAG_MIN = 4
"""Cells of a tag, however deep in the tree it is."""
FACTS_FROM = 26
"""Cells below which there is room for stem and tag only."""


def draw_small_tree(
    lines: tuple[TreeLine, ...], *, width: int, room: int, styles: dict[str, str]
) -> list[Content]:
    """The lines around where the sandbox stands, ``room`` of them at most and each of ``width``
    cells."""
    # Two thirds of what is shown are what led here.
    begin = min(max(0, here_index(lines) - room * 2 // 3), max(0, len(lines) - room))
    shown = lines[begin : begin + room]
    column = max(cell_len(line.stem + line.tag) + _room_for_here(line) for line in shown)
    widest = width - AGE - SIZE - 2 * GAP if width >= FACTS_FROM else width
    if any(line.note for line in shown) and widest - GAP - NOTE_MIN >= width // 2:
        # Tags of automatic checkpoints are long; notes say more.
        widest = min(widest - GAP - NOTE_MIN, width * 9 // 20)
    column = min(column, widest)
    return [_draw(line, column, width, styles) for line in shown]


def _room_for_here(line: TreeLine) -> int:
    return cell_len(line.here) + 1 if line.here else 0


def _draw(line: TreeLine, column: int, width: int, styles: dict[str, str]) -> Content:
    """Never markup: tags and notes come from anywhere."""
    # Where there is no room for the mark in words, the glyph in the stem tells it.
    stem = line.stem[-max(2, column - TAG_MIN) :]
    worded = line.here and column >= cell_len(stem) + _room_for_here(line) + TAG_MIN
    here = f" {line.here}" if worded else ""
    tag = clip(line.tag, column - cell_len(stem + here))
    pad = " " * max(0, column - cell_len(stem + tag + here))
    gap = " " * GAP
    facts = f"{pad}{gap}{line.age:>{AGE}}{gap}{line.size:>{SIZE}}" if width >= FACTS_FROM else ""
    style = styles[line.role]
    parts: list[tuple[str, str]] = [
        (stem, styles["muted"] if not line.role else style),
        (tag, "bold" if line.here else style),
        (here, "$text-accent"),
        (facts, styles["muted"]),
    ]
    left = width - column - AGE - SIZE - 3 * GAP
    if line.note and left >= NOTE_MIN:
        parts.append((gap + clip(line.note, left), styles["muted"]))
    return Content.assemble(*parts)
