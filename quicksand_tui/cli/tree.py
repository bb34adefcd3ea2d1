"""`quicksand-tui tree`: a sandbox's checkpoints, and where it stands among them."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import json_option, sandbox_argument
from quicksand_tui.forest import FANCY, PLAIN, Forest, Marks

if TYPE_CHECKING:
    from quicksand.snapshots.checkpoint import Checkpoint

HEADS = ("CHECKPOINT", "AGE", "PAUSE", "WRITTEN", "NOTE")
NOTE_MAX = 200
"""Characters; `--json` has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What is on disk of a sandbox's checkpoints."""

    name: str
    checkpoints: list[Checkpoint]
    """The oldest first."""
    broken: dict[str, str]
    """Id -> why it cannot be read."""
    head: str | None
    """The checkpoint that the present descends from."""

    @property
    def parents(self) -> dict[str, str | None]:
        """By id; of those that cannot be read it is unknown."""
        return dict.fromkeys(self.broken) | {made.id: made.parent for made in self.checkpoints}


@click.command("tree")
@sandbox_argument()
@json_option
def command(name: str, as_json: bool) -> None:
    """Show a sandbox's checkpoints as a tree, and where it stands.

    Of the running and of the stopped. Automatic checkpoints, taken by `revert`, are dim; a
    checkpoint that cannot be read is shown with the reason.
    """
    from quicksand_tui.cli.output import is_unicode, print_json, say
    from quicksand_tui.cli.text import clean

    past = read_past(name)
    if as_json:
        print_json(_facts(past))
        return
    for line in draw(past, FANCY if is_unicode(sys.stdout) else PLAIN, colour=_has_colour()):
        print(line)
    sys.stdout.flush()
    if not past.checkpoints and not past.broken:
        shown = clean(past.name)
        say(f"there are no checkpoints yet: `quicksand-tui checkpoint {shown} TAG` takes one")


def read_past(name: str) -> Past:
    """The checkpoints of a sandbox, running or not. Raises SandboxNotFoundError."""
    from quicksand.errors import HistoryError
    from quicksand.host.paths import paths
    from quicksand.layout import sandbox_dir
    from quicksand.registry import Registry
    from quicksand.snapshots.checkpoint import list_checkpoints
    from quicksand.snapshots.history import History

    from quicksand_tui.cli.output import complain

    where = paths()
    entry = Registry(where).find(name)
    history = History(sandbox_dir(where, entry.id))
    head = None
    if history.place.head.exists():
        try:
            head = history.position()
        except HistoryError as error:
            complain(error, hint="so it is unknown where the sandbox stands")
    return Past(
        name=entry.name,
        checkpoints=list_checkpoints(history),
        broken=history.broken(),
        head=head,
    )


def draw(past: Past, marks: Marks, *, colour: bool = False) -> list[str]:
    """The tree as lines of text."""
    from quicksand_tui.cli.output import format_table

    made = {checkpoint.id: checkpoint for checkpoint in past.checkpoints}
    rows: list[tuple[object, ...]] = [(past.name, "", "", "", "")]
    styles: list[dict[str, Any]] = [{}]
    for before, id_ in Forest.grow(past.parents, past.head).lines(marks):
        if id_ in made:
            rows.append(_row(before, made[id_], marks, is_head=id_ == past.head))
            styles.append({"bold": id_ == past.head or None, "dim": made[id_].auto or None})
        else:
            reason = past.broken[id_][:NOTE_MAX]
            rows.append((f"{before}{marks.broken} {id_} (broken)", "", "", "", reason))
            styles.append({"fg": "red"})
    head, *lines = format_table(HEADS, rows)
    if colour:
        lines = [click.style(line, **style) for line, style in zip(lines, styles, strict=True)]
    return [head, *lines]


def _row(before: str, made: Checkpoint, marks: Marks, *, is_head: bool) -> tuple[object, ...]:
    from quicksand_tui.cli.checkpoint import show_pause
    from quicksand_tui.cli.output import show_age, show_size

    glyph = marks.head if is_head else marks.node
    pinned = " (pinned)" if made.pinned else ""
    return (
        f"{before}{glyph} {made.tag}{pinned}" + (f" {marks.here}" if is_head else ""),
        show_age(made.created),
        show_pause(made.pause_s) if made.tier != "disk" else made.tier,
        show_size(made.bytes_written),
        made.note[:NOTE_MAX],
    )


def _facts(past: Past) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "sandbox": past.name,
        "head": past.head,
        "checkpoints": [
            {**asdict(made), "is_head": made.id == past.head} for made in past.checkpoints
        ],
        "broken": [{"id": id_, "error": error} for id_, error in past.broken.items()],
    }


def _has_colour() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
