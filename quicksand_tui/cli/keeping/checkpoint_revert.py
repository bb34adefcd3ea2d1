"""`quicksand-tui checkpoint, revert, undo, tree`: keep moments of a sandbox, go back to them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.snapshots.history import history_of
from quicksand.snapshots.tree import list_checkpoints, read_tree

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import (
    complain,
    format_table,
    has_colour,
    is_unicode,
    print_json,
    say,
    show_age,
    show_size,
)
from quicksand_tui.model.amounts import pause_text
from quicksand_tui.model.lanes import FANCY_LINES, PLAIN_LINES, LaneRow, lane_rows
from quicksand_tui.model.shown_sandboxes import FANCY, PLAIN, Marks
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import checkpoints

if TYPE_CHECKING:
    from quicksand.things.checkpoint import Checkpoint


HEADS = ("CHECKPOINT", "AGE", "PAUSE", "WRITTEN", "NOTE")
NOTE_MAX = 200
"""The longest note that is shown, in characters; `--json` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The checkpoints of a sandbox, as they are on disk."""

    name: str
    checkpoints: list[Checkpoint]
    """The readable checkpoints, oldest first."""
    broken: dict[str, str]
    """The ids of unreadable checkpoints, and why each cannot be read."""
    head: str | None
    """The id of the checkpoint from which the sandbox has run on."""
    changed: int | None = None
    """Bytes written to the disk since ``head``; None if unknown."""

    @property
    def parents(self) -> dict[str, str | None]:
        """The id of each checkpoint's parent by the checkpoint's id. The parents of unreadable
        checkpoints are not known."""
        return dict.fromkeys(self.broken) | {made.id: made.parent for made in self.checkpoints}


@command_of("tree")
def tree_command(name: str, as_json: bool) -> None:
    """Show a sandbox's checkpoints as a tree, and its place among them.

    The sandbox may run or not. Automatic checkpoints, which `revert` takes, are dim. A checkpoint
    that cannot be read is shown with the reason.
    """
    past = read_past(name)
    if as_json:
        print_json(_facts(past))
        return
    for line in draw(
        past, FANCY if is_unicode(sys.stdout) else PLAIN, colour=has_colour(sys.stdout)
    ):
        print(line)
    sys.stdout.flush()
    if not past.checkpoints and not past.broken:
        shown = clean(past.name)
        say(f"there are no checkpoints yet: `quicksand-tui checkpoint {shown} TAG` takes one")


def read_past(name: str) -> Past:
    """Reads the checkpoints of a sandbox, which need not run. Raises SandboxNotFoundError."""
    registry = Registry(paths())
    entry = registry.find(name)
    tree = read_tree(history_of(registry, entry.id))
    if tree.error:
        complain(tree.error, hint="so it is unknown where the sandbox stands")
    return Past(
        name=entry.name,
        checkpoints=list_checkpoints(history_of(registry, entry.id)),
        broken=dict(tree.broken),
        head=tree.head,
        changed=tree.changed,
    )


def draw(past: Past, marks: Marks, *, colour: bool = False) -> list[str]:
    """Returns the tree as lines of text.

    Does not use `rich.tree`, which indents every generation: hundreds of checkpoints in a line stay
    in one column here. Nor has it columns for age, pause, size and note.
    """
    made = {checkpoint.id: checkpoint for checkpoint in past.checkpoints}

    def rank(id_: str) -> tuple[float, str]:
        return (made[id_].created if id_ in made else 0.0, id_)

    drawn = lane_rows(past.parents, past.head, rank, FANCY_LINES if marks is FANCY else PLAIN_LINES)
    width = max((row.width for row in drawn), default=0)
    rows: list[tuple[object, ...]] = [(past.name, "", "", "", "")]
    styles: list[dict[str, Any]] = [{}]
    for row in drawn:
        if not row.id:
            rows.append((_stem(row, "", width), "", "", "", ""))
            styles.append({})
        elif row.id in made:
            here = _here(past, marks) if row.id == past.head else ""
            mark = marks.head if row.id == past.head else marks.node
            rows.append(_row(_stem(row, mark, width), made[row.id], here=here))
            styles.append({"bold": row.id == past.head or None, "dim": made[row.id].auto or None})
        else:
            reason = past.broken[row.id][:NOTE_MAX]
            name = f"{_stem(row, marks.broken, width)}{row.id} (broken)"
            rows.append((name, "", "", "", reason))
            styles.append({"fg": "red"})
    head, *lines = format_table(HEADS, rows)
    if colour:
        head = click.style(head, bold=True)
        lines = [click.style(line, **style) for line, style in zip(lines, styles, strict=True)]
    return [head, *lines]


def _stem(row: LaneRow, mark: str, width: int) -> str:
    """Returns the drawing of a row in ``width`` cells, and a space."""
    before, after = ("".join(stroke.text for stroke in part) for part in (row.before, row.after))
    return f"{before}{mark}{after}".ljust(width + 1)


def _here(past: Past, marks: Marks) -> str:
    """Returns the mark of the sandbox's present state, with the bytes written to the disk since its
    checkpoint."""
    return f"{marks.here} +{show_size(past.changed)}" if past.changed else marks.here


def _row(stem: str, made: Checkpoint, *, here: str) -> tuple[object, ...]:
    pinned = " (pinned)" if made.pinned else ""
    return (
        f"{stem}{made.tag}{pinned}" + (f" {here}" if here else ""),
        show_age(made.created),
        pause_text(made.pause_s) if made.has_memory else made.tier,
        show_size(made.bytes_written),
        made.note[:NOTE_MAX],
    )


def _facts(past: Past) -> dict[str, Any]:
    return {
        "sandbox": past.name,
        "head": past.head,
        "changed": past.changed,
        "checkpoints": [
            {**checkpoints.facts_of(made), "is_head": made.id == past.head}
            for made in past.checkpoints
        ],
        "broken": [{"id": id_, "error": error} for id_, error in past.broken.items()],
    }
