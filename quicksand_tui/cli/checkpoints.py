"""`quicksand-tui checkpoint, revert, undo, tree`: keep moments of a sandbox, go back to them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox
from quicksand.snapshots.checkpoint import list_checkpoints
from quicksand.snapshots.history import history_of
from quicksand.snapshots.tree import read_tree

from quicksand_tui.cli.commands import command_of
from quicksand_tui.cli.output import (
    Exit,
    complain,
    format_table,
    has_colour,
    is_unicode,
    print_json,
    print_table,
    say,
    show_age,
    show_size,
)
from quicksand_tui.cli.progress import shown
from quicksand_tui.cli.runner import Signals, opened, run_async
from quicksand_tui.model.amounts import pause_text, seconds_text
from quicksand_tui.model.checkpoints import FANCY, PLAIN, Marks
from quicksand_tui.model.lanes import FANCY_LINES, PLAIN_LINES, LaneRow, lane_rows
from quicksand_tui.model.specs import CheckpointSpec
from quicksand_tui.model.text import clean
from quicksand_tui.verbs import checkpoints
from quicksand_tui.verbs.record import ignore

if TYPE_CHECKING:
    from quicksand.snapshots.checkpoint import Checkpoint

    from quicksand_tui.verbs.checkpoints import Reached
    from quicksand_tui.verbs.record import SandboxVerb


@command_of("checkpoint")
def checkpoint_command(
    name: str,
    tag: str | None,
    note: str,
    replace: bool,
    tier: str | None,
    unmount_9p: bool,
    as_json: bool,
) -> int:
    """Keep the present state of a running sandbox: memory, processes and disk.

    The sandbox is paused for a moment; `revert` returns to that moment. Without
    TAG the checkpoint gets a number.

    \b
    quicksand-tui checkpoint rm NAME TAG...      removes checkpoints
    quicksand-tui checkpoint pin NAME TAG...     protects them from removal; `unpin` ends that
    quicksand-tui checkpoint note NAME TAG NOTE  changes the note of one
    quicksand-tui checkpoint -- rm               takes one of a sandbox called rm
    """
    if replace and tag is None:
        raise click.UsageError("--replace needs the TAG that is to be replaced")

    verb = checkpoints.take(
        CheckpointSpec(tag=tag, note=note), replace=replace, tier=tier, unmount_9p=unmount_9p
    )

    async def main(signals: Signals) -> int:
        with opened(name, hint=f"`quicksand-tui start {name}` starts it") as sandbox:
            async with shown(f"{name}: {verb.stage}"):
                made = await verb.act(sandbox, ignore)
        if as_json:
            print_json(verb.facts(sandbox.name, made))
            return Exit.OK
        row = (made.tag, pause_text(made.pause_s), show_size(made.bytes_written), made.tier)
        print_table(("TAG", "PAUSE", "WRITTEN", "TIER"), [row])
        # `doctor` tells how to make the usual tier faster, so only the notes of other tiers are
        # shown.
        if made.tier_note and not made.has_pages:
            say(f"tier {clean(made.tier)}: {clean(made.tier_note)}")
        return Exit.OK

    return run_async(main)


@command_of("checkpoint rm")
def remove(name: str, tags: tuple[str, ...]) -> int:
    """Remove checkpoints of a sandbox, running or not.

    Data that other checkpoints need are kept. The tags of the removed ones are printed.
    """
    return _each(name, tags, checkpoints.remove)


@command_of("checkpoint pin")
def pin(name: str, tags: tuple[str, ...]) -> int:
    """Protect checkpoints from removal, by mistake or as the oldest automatic ones."""
    return _each(name, tags, checkpoints.pin)


@command_of("checkpoint unpin")
def unpin(name: str, tags: tuple[str, ...]) -> int:
    """Let checkpoints be removed again."""
    return _each(name, tags, lambda tag: checkpoints.pin(tag, pinned=False))


@command_of("checkpoint note")
def write_note(name: str, tag: str, note: str) -> int:
    """Change the note of a checkpoint; an empty one deletes it."""
    return _each(name, (tag,), lambda tag: checkpoints.write_note(tag, note))


def _each(name: str, tags: tuple[str, ...], verb_of: Callable[[str], SandboxVerb[None]]) -> int:
    """Carries out the verb of every tag; prints the tags that succeeded and reports the errors of
    the others. Returns the exit code."""

    async def main(signals: Signals) -> int:
        sandbox = Sandbox.open(name)
        failures = 0
        try:
            for tag in dict.fromkeys(tags):
                try:
                    await verb_of(tag).act(sandbox, ignore)
                except QuicksandError as error:
                    failures += 1
                    complain(error)
                else:
                    print(clean(tag), flush=True)
        finally:
            sandbox.close()
        return Exit.FAILURE if failures else Exit.OK

    return run_async(main)


@command_of("revert")
def revert_command(name: str, tag: str, discard: bool, unmount_9p: bool, as_json: bool) -> int:
    """Return to a checkpoint: to its memory, its processes and its disk.

    The present state is kept as an automatic checkpoint, and `undo` returns to it. Running commands
    end with an error, because the sandbox goes back to a time before them.

    TAG is a checkpoint of NAME, or OTHER:TAG is one of another sandbox with the same image and
    machine options. NAME gets a copy of it then, and keeps its own name, addresses and secrets.
    """
    hint = f"`quicksand-tui start {name} --at TAG` resumes a checkpoint"
    verb = checkpoints.revert(tag, keep_now=not discard, unmount_9p=unmount_9p)
    return _go(name, verb, hint=hint, as_json=as_json)


@command_of("undo")
def undo_command(name: str, unmount_9p: bool, as_json: bool) -> int:
    """Undo the last revert.

    A second undo undoes the first one.
    """
    hint = f"`quicksand-tui tree {name}` lists what `start {name} --at TAG` can resume"
    return _go(name, checkpoints.undo(unmount_9p=unmount_9p), hint=hint, as_json=as_json)


def _go(name: str, verb: SandboxVerb[Reached], *, hint: str, as_json: bool) -> int:
    async def main(signals: Signals) -> int:
        with opened(name, hint=hint) as sandbox:
            async with shown(f"{name}: {verb.stage}"):
                reached = await verb.act(sandbox, ignore)
        if as_json:
            print_json(verb.facts(sandbox.name, reached))
        else:
            _tell(sandbox.name, reached)
        return Exit.OK

    return run_async(main)


def _tell(name: str, reached: Reached) -> None:
    at, kept = reached.at, reached.kept
    age, took = show_age(at.created), seconds_text(reached.seconds, 2)
    print(f"{clean(name)} was reverted to {clean(at.tag)!r}, from {age} ago ({took})")
    if form := checkpoints.slower_form(at):
        print(clean(form))
    if kept is None:
        print("what was until now is not kept", flush=True)
    else:
        print(
            f"what was until now is kept as {clean(kept.tag)!r}: "
            f"`quicksand-tui undo {clean(name)}` goes back to it",
            flush=True,
        )


HEADS = ("CHECKPOINT", "AGE", "PAUSE", "WRITTEN", "NOTE")
NOTE_MAX = 200
"""The longest note that is shown, in characters; `--json` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """The checkpoints of a sandbox, as they are on disk."""

    name: str
    checkpoints: list[Checkpoint]
    """The readable ones, oldest first."""
    broken: dict[str, str]
    """The ids of unreadable checkpoints, and why each cannot be read."""
    head: str | None
    """The id of the checkpoint from which the sandbox has run on."""
    changed: int | None = None
    """Bytes written to the disk since ``head``; None if unknown."""

    @property
    def parents(self) -> dict[str, str | None]:
        """Returns the id of each checkpoint's parent by the checkpoint's id. The parents of
        unreadable checkpoints are not known."""
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
