"""From checkpoints to the lines of their tree: pure functions, no widgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.forest import Forest, Marks
from quicksand_tui.text import age_text, pause_text, size_text
from quicksand_tui.view import Cell, Row

if TYPE_CHECKING:
    from quicksand_tui.past import CheckpointView, PastView

STEM_MAX = 12
"""Cells of what stands before a checkpoint: of a tree with more branches, the right end."""

PIN = "◆"
"""Marks one that cannot be deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """One checkpoint in the tree, in words."""

    id: str
    stem: str
    """Branches, the checkpoint's own mark and that of a pinned one, with a space after it."""
    tag: str
    here: str
    """What marks where the sandbox stands, or ""."""
    age: str
    pause: str
    size: str
    own: str
    """What deleting it would free."""
    note: str
    """Of one that cannot be read, the reason."""
    role: str
    """As of a `Cell`."""


def tree_lines(past: PastView, now: float, marks: Marks) -> tuple[TreeLine, ...]:
    """The tree from top to bottom."""
    made = {view.id: view for view in past.checkpoints}
    forest = Forest.grow(past.parents, past.head)
    return tuple(
        _line(before, made[id_], now, marks, is_head=id_ == past.head)
        for before, id_ in forest.lines(marks)
    )


def _pause(made: CheckpointView) -> str:
    """How long the VM stood still; of one without memory, that it is one."""
    return made.tier if made.tier == "disk" else pause_text(made.pause_s)


def _line(
    before: str, made: CheckpointView, now: float, marks: Marks, *, is_head: bool
) -> TreeLine:
    if len(before) > STEM_MAX:
        before = "…" + before[1 - STEM_MAX :]
    mark = marks.broken if made.error else (marks.head if is_head else marks.node)
    # Before the tag, which may be cut.
    pin = PIN if made.pinned else ""
    return TreeLine(
        id=made.id,
        stem=f"{before}{mark}{pin} ",
        tag=made.tag,
        here=marks.here if is_head else "",
        age="" if made.created is None else age_text(now - made.created),
        pause="" if made.error else _pause(made),
        size="" if made.error else size_text(made.written),
        own="" if made.error or made.own is None else size_text(made.own),
        note=made.error or made.note,
        role="error" if made.error else ("muted" if made.auto else ""),
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
