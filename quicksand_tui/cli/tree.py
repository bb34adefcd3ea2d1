"""`quicksand-tui tree`: a sandbox's checkpoints, and where it stands among them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from quicksand_tui.cli.options import json_option, sandbox_argument

if TYPE_CHECKING:
    from quicksand.snapshots.checkpoint import Checkpoint

HEADS = ("CHECKPOINT", "AGE", "PAUSE", "WRITTEN", "NOTE")
NOTE_MAX = 200
"""Characters; `--json` has all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """What the tree is drawn with."""

    branch: str
    last: str
    lane: str
    node: str
    head: str
    broken: str
    here: str


FANCY = Marks(branch="├─", last="└─", lane="│ ", node="○", head="●", broken="✗", here="← here")
PLAIN = Marks(branch="|-", last="`-", lane="| ", node="o", head="*", broken="x", here="<- here")


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


@dataclass(slots=True)
class Forest:
    """Who descends from whom. Every checkpoint is in it once, whatever the files say."""

    roots: list[str] = field(default_factory=list)
    children: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def grow(cls, past: Past) -> Forest:
        """The line that leads to the head comes last among siblings, so that it is drawn straight
        on; children of one that is gone are roots."""
        parents = {made.id: made.parent for made in past.checkpoints}
        ids = [*past.broken, *parents]
        line = set(_line_to(past.head, parents))
        forest = cls()
        for id_ in ids:
            parent = parents.get(id_)
            known = parent in parents or parent in past.broken
            siblings = forest.children.setdefault(parent or "", []) if known else forest.roots
            siblings.append(id_)
        forest._cut_circles(ids)
        for siblings in (forest.roots, *forest.children.values()):
            siblings.sort(key=lambda id_: id_ in line)
        return forest

    def _cut_circles(self, ids: list[str]) -> None:
        """Checkpoints that descend from themselves: the oldest becomes a root."""
        seen = {id_ for root in self.roots for id_ in self._descent(root)}
        for id_ in ids:
            if id_ not in seen:
                for children in self.children.values():
                    if id_ in children:
                        children.remove(id_)
                self.roots.append(id_)
                seen |= set(self._descent(id_))

    def _descent(self, root: str) -> Iterator[str]:
        waiting = [root]
        while waiting:
            id_ = waiting.pop()
            yield id_
            waiting += self.children.get(id_, [])

    def lines(self, marks: Marks) -> Iterator[tuple[str, str]]:
        """What stands before each checkpoint, and its id, from top to bottom."""
        waiting: list[tuple[str, str, str]] = []
        for number, root in enumerate(self.roots, 1):
            is_last = number == len(self.roots)
            below = "  " if is_last else marks.lane
            waiting.append((root, marks.last if is_last else marks.branch, below))
        waiting.reverse()
        while waiting:
            id_, before, below = waiting.pop()
            yield before, id_
            *branches, straight = self.children.get(id_) or [""]
            if straight:
                waiting.append((straight, below, below))
            for branch in reversed(branches):
                waiting.append((branch, below + marks.branch, below + marks.lane))


def _line_to(head: str | None, parents: dict[str, str | None]) -> Iterator[str]:
    seen: set[str] = set()
    while head is not None and head not in seen:
        yield head
        seen.add(head)
        head = parents.get(head)


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
    from quicksand.snapshots.checkpoint import Checkpoint
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
        checkpoints=[Checkpoint.from_node(node) for node in history.nodes()],
        broken=history.broken(),
        head=head,
    )


def draw(past: Past, marks: Marks, *, colour: bool = False) -> list[str]:
    """The tree as lines of text."""
    from quicksand_tui.cli.output import format_table

    made = {checkpoint.id: checkpoint for checkpoint in past.checkpoints}
    rows: list[tuple[object, ...]] = [(past.name, "", "", "", "")]
    styles: list[dict[str, Any]] = [{}]
    for before, id_ in Forest.grow(past).lines(marks):
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
    return (
        f"{before}{glyph} {made.tag}" + (f" {marks.here}" if is_head else ""),
        show_age(made.created),
        show_pause(made.pause_s),
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
