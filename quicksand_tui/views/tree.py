"""Turns checkpoints into the lines of their tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.model.amounts import age_text, pause_text, size_text
from quicksand_tui.model.checkpoints import Forest, Marks
from quicksand_tui.views.rows import Cell, Row

if TYPE_CHECKING:
    from quicksand_tui.model.checkpoints import CheckpointTree, CheckpointView


STEM_MAX = 12
"""Width of the drawing before a checkpoint; a wider one shows its right end."""

PIN = "◆"
"""Marks a pinned checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """One checkpoint in the tree, in words."""

    id: str
    stem: str
    """The branches, the checkpoint's mark, and a space."""
    tag: str
    here: str
    """The mark of the sandbox's present position, or ""."""
    age: str
    pause: str
    size: str
    own: str
    """The size that deleting it would free."""
    note: str
    """Its note, or why it cannot be read."""
    role: str
    """The role of its `Cell`s."""


def tree_lines(tree: CheckpointTree, now: float, marks: Marks) -> tuple[TreeLine, ...]:
    """Returns the tree from top to bottom; ``now`` is Unix time."""
    checkpoints = {view.id: view for view in tree.checkpoints}
    forest, here = Forest.grow(tree.parents, tree.head), here_text(tree, marks)
    return tuple(
        _line(before, checkpoints[id_], now, marks, here=here if id_ == tree.head else "")
        for before, id_ in forest.lines(marks)
    )


def here_text(tree: CheckpointTree, marks: Marks) -> str:
    """Returns the mark of the present position, with the bytes written since."""
    return f"{marks.here} +{size_text(tree.changed)}" if tree.changed else marks.here


def _pause(checkpoint: CheckpointView) -> str:
    """Returns how long the VM was paused; the tier's name for a checkpoint without memory."""
    return pause_text(checkpoint.pause_s) if checkpoint.has_memory else checkpoint.tier


def _line(
    before: str, checkpoint: CheckpointView, now: float, marks: Marks, *, here: str
) -> TreeLine:
    if len(before) > STEM_MAX:
        before = "…" + before[1 - STEM_MAX :]
    mark = marks.broken if checkpoint.error else (marks.head if here else marks.node)
    # The pin is before the tag, which may be cut.
    pin = PIN if checkpoint.pinned else ""
    return TreeLine(
        id=checkpoint.id,
        stem=f"{before}{mark}{pin} ",
        tag=checkpoint.tag,
        here=here,
        age="" if checkpoint.created is None else age_text(now - checkpoint.created),
        pause="" if checkpoint.error else _pause(checkpoint),
        size="" if checkpoint.error else size_text(checkpoint.written),
        own="" if checkpoint.error or checkpoint.own is None else size_text(checkpoint.own),
        note=checkpoint.error or checkpoint.note,
        role="error" if checkpoint.error else ("muted" if checkpoint.auto else ""),
    )


# The table


def tree_rows(lines: tuple[TreeLine, ...]) -> tuple[Row, ...]:
    return tuple(_row(line) for line in lines)


def _row(line: TreeLine) -> Row:
    quiet = line.role or "muted"
    cells = {
        "tag": Cell(
            line.stem + line.tag,
            "accent" if line.here else line.role,
            line.here,
            gives_way=True,
        ),
        "age": Cell(line.age, quiet),
        "pause": Cell(line.pause, quiet),
        "size": Cell(line.size, quiet),
        "own": Cell(line.own, quiet),
        "note": Cell(line.note, line.role),
    }
    return Row(line.id, cells)
