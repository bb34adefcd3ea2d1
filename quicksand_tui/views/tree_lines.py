"""Turns checkpoints into the lines of their tree."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen

from quicksand_tui.model.amounts import age_text, pause_text, size_text
from quicksand_tui.model.lanes import (
    FANCY_LINES,
    FOLD,
    PLAIN_LINES,
    Folded,
    LaneRow,
    fold,
    lane_rows,
)
from quicksand_tui.model.shown_sandboxes import FANCY, PLAIN, Marks
from quicksand_tui.model.text import drawn_cells
from quicksand_tui.views.tables import Cell, Column, Row, Words

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from quicksand_tui.model.shown_sandboxes import CheckpointTree, CheckpointView


STEM_MAX = 14
"""Cells of the drawing; of a wider drawing, the part with the checkpoint is shown."""

PICTURE, PIN, DISK_ONLY = "▣", "◆", "◌"
"""Mark a checkpoint with a picture of the screen, a pinned one, and one without memory."""

HERE = "HERE"


@frozen
class TreeLook:
    """The look of a tree."""

    now: float
    """Unix time."""
    opened: Collection[str] = ()
    """Keys of the folds that are open."""
    turned: bool = False
    """The newest checkpoint comes first."""
    fresh: Collection[str] = ()
    """Ids of checkpoints that were just made."""
    ascii_only: bool = False


@frozen
class TreeRows:
    """A tree as the rows of a table."""

    rows: tuple[Row, ...] = ()
    folded: Folded = field(default_factory=lambda: Folded({}, {}, {}))
    needs: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Cells of the drawing, of the longest name and note, and of the marks."""


LINES_COUNTED_MAX = 300
"""The number of checkpoints from which the lines between are not counted: no screen has them."""


def tree_lines(tree: CheckpointTree) -> int:
    """Returns the number of lines of a tree with all folds closed."""
    if len(tree.checkpoints) > LINES_COUNTED_MAX:
        return len(tree.checkpoints)
    return len(tree_rows(tree, TreeLook(now=0.0)).rows)


def tree_rows(tree: CheckpointTree, look: TreeLook) -> TreeRows:
    """Returns the tree from top to bottom."""
    folded = fold(tree, look.opened)
    made = {view.id: view for view in tree.checkpoints}

    def rank(key: str) -> tuple[float, str]:
        # A fold comes straight after the checkpoint from which it hangs.
        of = made.get(key.removeprefix(FOLD))
        when = of.created if of is not None else 0.0
        return (when, f"{key.removeprefix(FOLD)}\uffff" if key.startswith(FOLD) else key)

    lines = PLAIN_LINES if look.ascii_only else FANCY_LINES
    drawn = lane_rows(folded.parents, tree.head, rank, lines, turned=look.turned)
    marks = PLAIN if look.ascii_only else FANCY
    stem = max((min(STEM_MAX, row.width) for row in drawn), default=0)
    kinds = _kinds(tree.checkpoints)
    rows = []
    for number, row in enumerate(drawn):
        if (view := made.get(row.id)) is not None:
            rows.append(_row(row, view, tree, look, marks, stem, kinds))
        elif row.id:
            rows.append(_fold_row(row, folded.counts[row.id], marks, stem))
        else:
            rows.append(Row(f"line:{number}", _cells(lead=_stem(row, "", "", stem)), dead=True))
    names = max((drawn_cells(row.cells["tag"].text) for row in rows), default=0)
    notes = max((drawn_cells(row.cells["note"].text) for row in rows), default=0)
    return TreeRows(rows=tuple(rows), folded=folded, needs=(stem, names, notes, len(kinds)))


def _kinds(checkpoints: Iterable[CheckpointView]) -> str:
    """Returns the marks that a tree uses."""
    used = "".join(dict.fromkeys("".join(map(_marks, checkpoints))))
    return "".join(mark for mark in (PICTURE, PIN, DISK_ONLY) if mark in used)


def _marks(view: CheckpointView) -> str:
    if view.error:
        return ""
    picture = PICTURE if view.has_picture else ""
    return picture + (PIN if view.pinned else "") + ("" if view.has_memory else DISK_ONLY)


def _row(
    row: LaneRow,
    view: CheckpointView,
    tree: CheckpointTree,
    look: TreeLook,
    marks: Marks,
    stem: int,
    kinds: str,
) -> Row:
    here = view.id == tree.head
    mark = marks.broken if view.error else marks.head if here else marks.node
    mark_role = "error" if view.error else "accent" if row.on_line else "muted"
    quiet = "error" if view.error else "muted"
    is_fresh = view.id in look.fresh
    role = "error" if view.error else "success" if is_fresh else "accent" if here else ""
    if view.auto and not here and not is_fresh:
        role = "muted"
    age = "" if not view.created else age_text(look.now - view.created)
    own = size_text(view.size) if view.is_measured and not view.error else ""
    pause = pause_text(view.pause_s) if view.has_memory else view.tier
    own_marks = _marks(view)
    return Row(
        view.id,
        _cells(
            lead=_stem(row, mark, mark_role, stem),
            tag=Cell(view.tag, role, gives_way=True),
            when=Cell(HERE if here else age, "accent" if here else quiet),
            own=Cell(
                "" if view.error else _since(tree) if here else own, "accent" if here else quiet
            ),
            marks=Cell("".join(m if m in own_marks else " " for m in kinds), "accent"),
            note=Cell(view.error or view.note, "error" if view.error else ""),
            pause=Cell("" if view.error else pause, "success" if is_fresh else quiet),
            size=Cell("" if view.error else size_text(view.bytes_written), quiet),
        ),
    )


def _since(tree: CheckpointTree) -> str:
    """Returns the bytes written since the head of the tree."""
    return f"+{size_text(tree.changed)}" if tree.changed else ""


def _fold_row(row: LaneRow, count: int, marks: Marks, stem: int) -> Row:
    lead = _stem(row, marks.fold, "muted", stem)
    return Row(row.id, _cells(lead=lead, tag=Cell(f"{count} auto", "muted")))


EMPTY = Cell("")


def _cells(*, lead: tuple[Words, ...], tag: Cell = EMPTY, **cells: Cell) -> dict[str, Cell]:
    given = {"when": EMPTY, "own": EMPTY, "marks": EMPTY, "note": EMPTY, "pause": EMPTY}
    return {**given, "size": EMPTY, **cells, "tag": replace(tag, lead=lead)}


def _stem(row: LaneRow, mark: str, role: str, width: int) -> tuple[Words, ...]:
    """Returns the drawing of a row in ``width`` cells, and a space."""
    strokes = [(stroke.text, "accent" if stroke.on_line else "muted") for stroke in row.before]
    at = sum(len(text) for text, _ in strokes)
    strokes += [(mark, role)] if mark else []
    strokes += [(stroke.text, "accent" if stroke.on_line else "muted") for stroke in row.after]
    glyphs = [(glyph, style) for text, style in strokes for glyph in text]
    while glyphs and glyphs[-1][0] == " ":
        glyphs.pop()
    first = max(0, at + 1 - width) if mark else 0
    shown = glyphs[first : first + width]
    if first:
        shown[0] = ("…", "muted")
    if len(glyphs) > first + width:
        shown[-1] = shown[-1] if at == first + width - 1 else ("…", "muted")
    shown += [(" ", "")] * (width + 1 - len(shown))
    return tuple(_joined(shown))


def _joined(glyphs: Iterable[tuple[str, str]]) -> Iterable[Words]:
    """Joins neighbours of the same role."""
    text, role = "", ""
    for glyph, style in glyphs:
        if style != role and text:
            yield text, role
            text = ""
        text, role = text + glyph, style
    if text:
        yield text, role


# The table

_TAG_MIN, _TAG_FIRST = 10, 28
_NOTE_MIN = 6
_WHEN = Column("when", "Age", 4, right=True, gap=1)
_OWN = Column("own", "Own", 6, right=True)
_PAUSE = Column("pause", "Pause", 7, right=True)
_SIZE = Column("size", "Written", 7, right=True)


def plan_tree_columns(width: int, needs: tuple[int, int, int, int]) -> tuple[Column, ...]:
    """Returns the columns that fit into ``width`` cells: the name, the time, the marks, the
    checkpoint's own size or the bytes written since, its note, its pause. Names are cut last."""
    stem, name, note, kinds = needs
    lead = stem + 1
    name = max(_TAG_MIN, name)
    room = width - lead - 2
    tag = max(1, min(name, _TAG_FIRST, room))
    if room - tag < _WHEN.cells <= room - _TAG_MIN:
        tag = room - _WHEN.cells
    room -= tag
    shown: dict[str, Column] = {}

    def take(column: Column) -> None:
        nonlocal room
        if column.width > 0 and column.cells <= room:
            shown[column.key] = column
            room -= column.cells

    for column in (_WHEN, Column("marks", "", kinds, gap=1), _OWN):
        take(column)
    more = max(0, min(name - tag, room))
    tag, room = tag + more, room - more
    take(Column("note", "Note", min(note, _NOTE_MIN)))
    # A pause is worth less than the rest of a note.
    unsaid = note - (shown["note"].width if "note" in shown else 0)
    for column in (_PAUSE, _SIZE):
        if column.cells + unsaid <= room:
            take(column)
    if "note" in shown:
        shown["note"] = Column("note", "Note", min(note, shown["note"].width + room))
    shown["tag"] = Column("tag", "Checkpoint", lead + tag)
    order = ("tag", "marks", "when", "own", "pause", "size", "note")
    *before, last = (shown[key] for key in order if key in shown)
    # One cell is enough after the last column, beside the scroll bar.
    wider = last.gap - 1 if last.key == "note" and last.width < note else 0
    return (*before, replace(last, gap=1, width=last.width + wider))
