"""The verbs that keep moments of a sandbox, and revert to them: `checkpoint`, `revert`, `undo`,
`tree`, `diff`."""

from __future__ import annotations

import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand.things.checkpoint import Checkpoint, CheckpointFacts
from quicksand.things.status import HAS_MACHINE

from quicksand_tui.model.amounts import age_text, pause_text, seconds_text, size_text
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import NOTE_LIMIT, TAG_LIMIT, shown
from quicksand_tui.model.text import TITLE_CELLS, clean, clip, sanitise
from quicksand_tui.verbs.call import Call, Table, UsageError
from quicksand_tui.verbs.parameters import JSON, SANDBOX, TAG, TAGS, UNMOUNT_9P
from quicksand_tui.verbs.verb import Asked, Form, Kind, argument, command, flag, option, verb

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from quicksand.sandbox import Sandbox

    from quicksand_tui.model.keymap import Keymap


@verb("checkpoint",
    SANDBOX,
    argument("tag", Kind.NEW_TAG, required=False, on_line=True, asked=Asked("Tag",
             hint="a number if empty", limit=TAG_LIMIT)),
    option("-m --note", Kind.TEXT, "NOTE", "Add a note to it.", default="", on_line=True,
           asked=Asked("Note", hint="optional", limit=NOTE_LIMIT)),
    flag("--replace", "Replace the checkpoint with this tag."),
    option("--tier", Kind.CHOICE, "", "Keep memory in this way.  [default: the best possible]",
           choices=("pages", "internal")), UNMOUNT_9P, JSON,
    summary="Keep a sandbox's present state, to revert to it later.", states=HAS_MACHINE,
    hint="`quicksand-tui start {}` starts it",
    form=Form("Checkpoint of {}", "Take checkpoint", "takes the checkpoint"))  # fmt: skip
def take(
    tag: str | None = None,
    *,
    note: str = "",
    replace: bool = False,
    tier: str | None = None,
    unmount_9p: bool = False,
) -> Call[Checkpoint]:
    """Keep the present state of a running sandbox: memory, processes and disk.

    The sandbox is paused for a moment; `revert` reverts it to that moment. Without
    TAG the checkpoint gets a number.

    \b
    quicksand-tui checkpoint rm NAME TAG...      removes checkpoints
    quicksand-tui checkpoint pin NAME TAG...     protects them from removal; `unpin` ends that
    quicksand-tui checkpoint note NAME TAG NOTE  changes the note of one
    quicksand-tui checkpoint -- rm               takes one of a sandbox called rm
    """
    if replace and tag is None:
        raise UsageError("--replace needs the TAG that is to be replaced")
    return Call(
        job=JobVerb.CHECKPOINT,
        failed="No checkpoint was taken",
        stage="taking a checkpoint",
        act=lambda sandbox, _: sandbox.checkpoint(
            tag, note=note, replace=replace, tier=tier, unmount_9p=unmount_9p
        ),
        tell=_tell_taken,
        facts=lambda name, taken: {"sandbox": name, **facts_of(taken)},
        lines=_table_of_taken,
        # `doctor` tells how to make the usual tier faster, so only the notes of others are told.
        said=lambda _, taken: (
            [f"tier {clean(taken.tier)}: {clean(taken.tier_note)}"]
            if taken.tier_note and not taken.has_pages
            else []
        ),
    )


def _table_of_taken(name: str, taken: Checkpoint) -> Table:
    written = size_text(taken.bytes_written, wide=True)
    return Table(
        ("TAG", "PAUSE", "WRITTEN", "TIER"),
        [(taken.tag, pause_text(taken.pause_s), written, taken.tier)],
    )


def _tell_taken(name: str, taken: Checkpoint, keymap: Keymap) -> str:
    tier = "" if taken.has_pages else f" ({sanitise(f'{taken.tier}: {taken.tier_note}')})"
    return (
        f"{name}: checkpoint {_short(taken.tag)}: paused for "
        f"{pause_text(taken.pause_s)}, {size_text(taken.bytes_written)} written{tier}"
    )


def facts_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns the facts of a checkpoint for JSON, without the form of a revert to it."""
    return {one.name: getattr(checkpoint, one.name) for one in fields(CheckpointFacts)}


def _short(tag: str) -> str:
    return clip(sanitise(tag), TITLE_CELLS)


# Going back


class Reached(NamedTuple):
    """The result of going back."""

    at: Checkpoint
    kept: Checkpoint | None
    """The checkpoint that keeps the state from before."""
    seconds: float


async def _go(sandbox: Sandbox, change: Callable[[], Awaitable[Checkpoint]]) -> Reached:
    before = {made.id for made in sandbox.checkpoints()}
    started = time.perf_counter()
    reached = await change()
    seconds = time.perf_counter() - started
    return Reached(reached, newest_automatic(sandbox, before), seconds)


def newest_automatic(sandbox: Sandbox, before: set[str]) -> Checkpoint | None:
    """Returns the newest automatic checkpoint whose id is not in ``before``: the one that keeps the
    state from before a revert."""
    new = [made for made in sandbox.checkpoints() if made.auto and made.id not in before]
    return new[-1] if new else None


def _reached_facts(name: str, reached: Reached) -> dict[str, Any]:
    return {
        "sandbox": name,
        "seconds": round(reached.seconds, 4),
        "at": facts_of(reached.at),
        "kept": facts_of(reached.kept) if reached.kept else None,
        "form": reached.at.revert_form,
        "why": reached.at.revert_why or None,
    }


FORMS = {
    "flushed": "QEMU translates the guest's code anew",
    "new QEMU": "a new QEMU was needed",
}
"""The meanings of the forms of a revert that are not the best one (`Checkpoint.revert_form`)."""


def slower_form(at: Checkpoint) -> str:
    """Returns the form of a revert and its reason, in words; "" if there is no better form."""
    meaning = FORMS.get(at.revert_form)
    return f"{meaning}: {at.revert_why}" if meaning and at.revert_why else ""


def _reached_call(
    stage: str, said: str, go: Callable[[Sandbox], Awaitable[Checkpoint]], **more: Any
) -> Call[Reached]:
    def tell(name: str, reached: Reached, keymap: Keymap) -> str:
        told = f"{name}: {said.format(_short(reached.at.tag))} (undo: {keymap.hint('undo')})"
        form = slower_form(reached.at)
        return f"{told}; {sanitise(form)}" if form else told

    return Call(
        stage=stage,
        act=lambda sandbox, _: _go(sandbox, lambda: go(sandbox)),
        tell=tell,
        facts=_reached_facts,
        lines=_reached_lines,
        **more,
    )


def _reached_lines(name: str, reached: Reached) -> Iterator[str]:
    at, kept, name = reached.at, reached.kept, clean(name)
    age = age_text(time.time() - at.created, wide=True)
    took = seconds_text(reached.seconds, 2)
    yield f"{name} was reverted to {clean(at.tag)!r}, from {age} ago ({took})"
    if form := slower_form(at):
        yield clean(form)
    if kept is None:
        yield "what was until now is not kept"
    else:
        yield (
            f"what was until now is kept as {clean(kept.tag)!r}: `quicksand-tui undo {name}` "
            "reverts to it"
        )


@verb("revert",
    SANDBOX,
    argument("tag", Kind.TARGET, on_line=True),
    flag("--discard", "Do not keep the present state, which makes undo impossible."),
    UNMOUNT_9P, JSON, summary="Return a sandbox to a checkpoint.", states=HAS_MACHINE,
    hint="`quicksand-tui start {} --at TAG` resumes a checkpoint")  # fmt: skip
def revert(tag: str, *, discard: bool = False, unmount_9p: bool = False) -> Call[Reached]:
    """Return to a checkpoint: to its memory, its processes and its disk.

    The present state is kept as an automatic checkpoint, and `undo` returns to it. Running commands
    end with an error, because the sandbox is reverted to a time before them.

    TAG is a checkpoint of NAME, or OTHER:TAG is one of another sandbox with the same image and
    machine options. NAME gets a copy of it then, and keeps its own name, addresses and secrets.
    """
    return _reached_call(
        f"reverting to {shown(tag)}",
        "reverted to {}",
        lambda sandbox: sandbox.revert(tag, keep_now=not discard, unmount_9p=unmount_9p),
        job=JobVerb.REVERT,
        failed="The revert failed",
    )


@verb("undo",
    SANDBOX, UNMOUNT_9P, JSON, summary="Undo the last revert.", states=HAS_MACHINE,
    hint="`quicksand-tui tree {0}` lists what `start {0} --at TAG` can resume")  # fmt: skip
def undo(*, unmount_9p: bool = False) -> Call[Reached]:
    """Undo the last revert.

    A second undo undoes the first one.
    """
    return _reached_call(
        "undoing the revert",
        "revert undone",
        lambda sandbox: sandbox.undo(unmount_9p=unmount_9p),
        job=JobVerb.UNDO,
        failed="The undo failed",
    )


# The tree


@verb("checkpoint rm", SANDBOX, TAGS)
def remove(tag: str) -> Call[None]:
    """Remove checkpoints of a sandbox, running or not.

    Data that other checkpoints need are kept. The tags of the removed ones are printed.
    """
    return Call(
        job=JobVerb.REMOVE,
        failed="The checkpoint was not deleted",
        stage=f"deleting {shown(tag)}",
        act=lambda sandbox, _: sandbox.delete_checkpoint(tag),
        tell=lambda name, _, keymap: f"{name}: checkpoint {_short(shown(tag))} is deleted",
    )


@verb("checkpoint pin", SANDBOX, TAGS)
def pin(tag: str) -> Call[None]:
    """Protect checkpoints from removal, by mistake or as the oldest automatic ones."""
    return _pin(tag, True, "is pinned: it cannot be deleted")


@verb("checkpoint unpin", SANDBOX, TAGS)
def unpin(tag: str) -> Call[None]:
    """Let checkpoints be removed again."""
    return _pin(tag, False, "can be deleted again")


def _pin(tag: str, pinned: bool, now: str) -> Call[None]:
    return Call(
        job=JobVerb.PIN,
        failed="The checkpoint is as it was",
        act=lambda sandbox, _: sandbox.pin_checkpoint(tag, pinned),
        tell=lambda name, _, keymap: f"{name}: {_short(shown(tag))} {now}",
    )


@verb("checkpoint note",
    SANDBOX, TAG,
    argument("note", asked=Asked("Note", hint="none", limit=NOTE_LIMIT)),
    form=Form("Note of {}", "Write", "writes it"))  # fmt: skip
def write_note(tag: str, note: str) -> Call[None]:
    """Change the note of a checkpoint; an empty one deletes it."""
    return Call(
        job=JobVerb.NOTE,
        failed="The note is as it was",
        act=lambda sandbox, _: sandbox.note_checkpoint(tag, note),
        lines=lambda _, __: [clean(tag)],
        tell=lambda name, _, keymap: (
            f"{name}: {_short(shown(tag))} has {'a' if note else 'no'} note"
        ),
    )


# fmt: off
TREE = command("tree", ".keeping.tree_diff",
    "Show a sandbox's checkpoints and its place among them.",
    SANDBOX, JSON,
    reads=True)

DIFF = command("diff", ".keeping.tree_diff", "Show files that differ between two checkpoints.",
    SANDBOX,
    argument("a", Kind.CHECKPOINT, "A", on_line=True),
    argument("b", Kind.CHECKPOINT, "[B]", required=False, on_line=True),
    flag("--parent", "Compare A with its parent."),
    flag("--stat", "Show how many lines were added and removed."),
    flag("--patch", "Write a patch, for `git apply` or `patch -p1`."),
    JSON,
    reads=True)
# fmt: on
