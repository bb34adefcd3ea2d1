"""Keeps moments of a sandbox, and goes back to them: `checkpoint`, `revert`, `undo`."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from quicksand_tui.model.amounts import pause_text, size_text
from quicksand_tui.model.checkpoints import NOTE_LIMIT, TAG_LIMIT, CheckpointView
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.text import TITLE_CELLS, clip, sanitise
from quicksand_tui.verbs import engine
from quicksand_tui.verbs.record import Relayed, SandboxVerb, no_result

if TYPE_CHECKING:
    from quicksand.sandbox import Sandbox
    from quicksand.snapshots.checkpoint import Checkpoint

    from quicksand_tui.model.keymap import Keymap
    from quicksand_tui.model.specs import CheckpointSpec


def take(
    spec: CheckpointSpec,
    *,
    replace: bool = False,
    tier: str | None = None,
    unmount_9p: bool = False,
) -> SandboxVerb[Checkpoint]:
    """Takes a checkpoint of a running or paused sandbox; with ``replace`` instead of the one that
    has its tag."""
    return SandboxVerb(
        name="checkpoint",
        values={"note": spec.note, "tag": spec.tag},
        job=JobVerb.CHECKPOINT,
        failed="No checkpoint was taken",
        stage="taking a checkpoint",
        act=lambda sandbox, _: sandbox.checkpoint(
            spec.tag, note=spec.note, replace=replace, tier=tier, unmount_9p=unmount_9p
        ),
        tell=_tell_taken,
        facts=lambda name, taken: {"sandbox": name, **facts_of(taken)},
        there=lambda told: checkpoint_of(told.json),
    )


def _tell_taken(name: str, taken: Checkpoint, keymap: Keymap) -> str:
    view = view_of(taken)
    tier = f" ({view.tier}: {view.tier_note})" if not view.has_pages else ""
    return (
        f"{name}: checkpoint {_short(view.tag)}: paused for "
        f"{pause_text(view.pause_s)}, {size_text(view.written)} written{tier}"
    )


def facts_of(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns what a checkpoint is, as JSON has it: how a revert to it was done is no part of
    that."""
    facts = asdict(checkpoint)
    return {name: value for name, value in facts.items() if not name.startswith("revert_")}


def checkpoint_of(facts: Any) -> Checkpoint:
    """Returns the checkpoint that `facts_of` has told of. Raises LookupError, TypeError or
    ValueError if it makes no sense."""
    told = engine.Fields(facts, "the checkpoint")
    made = engine.Checkpoint(
        tag=told.text("tag"),
        id=told.text("id"),
        parent=told.maybe("parent", told.text),
        created=told.real("created"),
        note=told.text("note"),
        tier=told.text("tier"),
        tier_note=told.text("tier_note"),
        auto=told.flag("auto"),
        pinned=told.flag("pinned"),
        pause_s=told.real("pause_s"),
        bytes_written=told.whole("bytes_written"),
    )
    if not (made.has_memory or made.tier):  # an unknown tier raises LookupError
        raise ValueError("the checkpoint has no tier")
    return made


def view_of(checkpoint: Checkpoint) -> CheckpointView:
    """Returns a checkpoint of the engine as the app shows it."""
    tag = sanitise(checkpoint.tag, limit=TAG_LIMIT)
    return CheckpointView(
        id=checkpoint.id,
        tag=tag,
        name=tag if tag == checkpoint.tag else checkpoint.id,
        parent=checkpoint.parent,
        created=checkpoint.created,
        note=sanitise(checkpoint.note, limit=NOTE_LIMIT),
        tier=sanitise(checkpoint.tier, limit=20),
        tier_note=sanitise(checkpoint.tier_note),
        has_memory=checkpoint.has_memory,
        has_pages=checkpoint.has_pages,
        auto=checkpoint.auto,
        pinned=checkpoint.pinned,
        pause_s=checkpoint.pause_s,
        written=checkpoint.bytes_written,
    )


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


def _reached_there(told: Relayed) -> Reached:
    facts = engine.Fields(told.json, "the revert")
    at = checkpoint_of(facts.any("at"))
    form, why = facts.maybe("form", facts.text), facts.maybe("why", facts.text)
    return Reached(
        replace(at, revert_form=form or "", revert_why=why or ""),
        facts.maybe("kept", lambda name: checkpoint_of(facts.any(name))),
        facts.real("seconds"),
    )


FORMS = {
    "flushed": "QEMU translates the guest's code anew",
    "new QEMU": "a new QEMU was needed",
}
"""What the forms of a revert mean that are not the best one (`Checkpoint.revert_form`)."""


def slower_form(at: Checkpoint) -> str:
    """Returns how a revert was done and why, in words; "" if there is no better form."""
    meaning = FORMS.get(at.revert_form)
    return f"{meaning}: {at.revert_why}" if meaning and at.revert_why else ""


def _tell_reached(said: str, reached: Reached) -> str:
    form = slower_form(reached.at)
    return f"{said}; {sanitise(form)}" if form else said


def revert(
    to: str, *, shown: str = "", keep_now: bool = True, unmount_9p: bool = False
) -> SandboxVerb[Reached]:
    """Goes back to the checkpoint ``to``, an id or a tag that commands call ``shown``, after taking
    one of the present state unless ``keep_now`` is false."""
    return SandboxVerb(
        name="revert",
        values={"tag": shown or to},
        job=JobVerb.REVERT,
        failed="The revert failed",
        stage=f"going back to {shown or to}",
        act=lambda sandbox, _: _go(
            sandbox, lambda: sandbox.revert(to, keep_now=keep_now, unmount_9p=unmount_9p)
        ),
        tell=lambda name, reached, keymap: _tell_reached(
            f"{name}: reverted to {_short(reached.at.tag)} (undo: {keymap.hint('undo')})", reached
        ),
        facts=_reached_facts,
        there=_reached_there,
    )


def undo(*, unmount_9p: bool = False) -> SandboxVerb[Reached]:
    """Takes the last revert back."""
    return SandboxVerb(
        name="undo",
        job=JobVerb.UNDO,
        failed="The undo failed",
        stage="undoing the revert",
        act=lambda sandbox, _: _go(sandbox, lambda: sandbox.undo(unmount_9p=unmount_9p)),
        tell=lambda name, reached, keymap: _tell_reached(
            f"{name}: revert undone (undo: {keymap.hint('undo')})", reached
        ),
        facts=_reached_facts,
        there=_reached_there,
    )


# What stands in the tree. Each takes a checkpoint's id or tag, which commands call ``shown``.


def remove(checkpoint: str, *, shown: str = "") -> SandboxVerb[None]:
    """Deletes a checkpoint; what others need of it stays."""
    shown = shown or checkpoint
    return SandboxVerb(
        name="checkpoint rm",
        values={"tags": shown},
        job=JobVerb.REMOVE,
        failed="The checkpoint was not deleted",
        stage=f"deleting {shown}",
        act=lambda sandbox, _: sandbox.delete_checkpoint(checkpoint),
        there=no_result,
        tell=lambda name, _, keymap: f"{name}: checkpoint {_short(shown)} is deleted",
    )


def pin(checkpoint: str, *, shown: str = "", pinned: bool = True) -> SandboxVerb[None]:
    """Protects a checkpoint against deletion, or ends that."""
    shown = shown or checkpoint
    now = "is pinned: it cannot be deleted" if pinned else "can be deleted again"
    return SandboxVerb(
        name="checkpoint pin" if pinned else "checkpoint unpin",
        values={"tags": shown},
        job=JobVerb.PIN,
        failed="The checkpoint is as it was",
        act=lambda sandbox, _: sandbox.pin_checkpoint(checkpoint, pinned),
        there=no_result,
        tell=lambda name, _, keymap: f"{name}: {_short(shown)} {now}",
    )


def write_note(checkpoint: str, note: str, *, shown: str = "") -> SandboxVerb[None]:
    """Writes another note to a checkpoint; an empty one takes it away."""
    shown = shown or checkpoint
    return SandboxVerb(
        name="checkpoint note",
        values={"tag": shown, "note": note},
        job=JobVerb.NOTE,
        failed="The note is as it was",
        act=lambda sandbox, _: sandbox.note_checkpoint(checkpoint, note),
        there=no_result,
        tell=lambda name, _, keymap: f"{name}: {_short(shown)} has {'a' if note else 'no'} note",
    )
