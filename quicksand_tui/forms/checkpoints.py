"""The forms for checkpoints: a new checkpoint, a note, clones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quicksand_tui.forms.checks import find_tag_problem
from quicksand_tui.forms.form import Field, Form, Option, Values
from quicksand_tui.model.checkpoints import NOTE_LIMIT, TAG_LIMIT, CheckpointView
from quicksand_tui.model.specs import CheckpointSpec, CloneSpec
from quicksand_tui.model.text import TITLE_CELLS, clip
from quicksand_tui.verbs import checkpoints, starting
from quicksand_tui.verbs.shared_rows import clones_max

if TYPE_CHECKING:
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.verbs.record import SandboxVerb


def checkpoint_form(sandbox: SandboxView) -> Form:
    """Makes the form of a new checkpoint; tag and note may stay empty."""

    def problems(values: Values, now: World) -> Mapping[str, str]:
        tree = (now.sandbox(sandbox.id) or sandbox).tree
        problem = find_tag_problem(values["tag"], tree)
        return {"tag": problem} if problem else {}

    return Form(
        title=f"Checkpoint of {sandbox.name}",
        does="takes the checkpoint",
        button="Take checkpoint",
        fields=(
            Field(id="tag", label="Tag", hint="a number if empty", limit=TAG_LIMIT),
            Field(id="note", label="Note", hint="optional", limit=NOTE_LIMIT),
        ),
        command=lambda values: checkpoint_of(values).command_for(sandbox.name),
        problems=problems,
    )


def checkpoint_of(values: Values) -> SandboxVerb[Any]:
    """Returns what the form asks for."""
    return checkpoints.take(CheckpointSpec(tag=values["tag"] or None, note=values["note"]))


def note_form(sandbox: SandboxView, checkpoint: CheckpointView) -> Form:
    return Form(
        title=f"Note of {clip(checkpoint.tag, TITLE_CELLS)}",
        does="writes it",
        button="Write",
        fields=(
            Field(id="note", label="Note", value=checkpoint.note, limit=NOTE_LIMIT, hint="none"),
        ),
        command=lambda values: note_of(values, checkpoint).command_for(sandbox.name),
        problems=lambda values, now: {},
    )


def note_of(values: Values, checkpoint: CheckpointView) -> SandboxVerb[Any]:
    """Returns what the form asks for."""
    return checkpoints.write_note(checkpoint.id, values["note"], shown=checkpoint.name)


WITH_MOUNTS = (
    Option(value="", label="none"),
    Option(value="ro", label="read-only"),
    Option(value="rw", label="as mounted here", note="all clones write to the same files"),
)


def clone_form(sandbox: SandboxView, checkpoint: CheckpointView | None = None) -> Form:
    """Makes the form of clones of the present, or of a checkpoint."""
    what = sandbox.name if checkpoint is None else f"{sandbox.name} at {checkpoint.tag}"
    fields = [Field(id="count", label="How many", value="1", limit=len(str(clones_max())))]
    if sandbox.mounts:
        fields.append(Field(id="mounts", label="Mounts", options=lambda world, values: WITH_MOUNTS))
    return Form(
        title=f"Clones of {clip(what, TITLE_CELLS)}",
        does="makes them",
        button="Clone",
        fields=tuple(fields),
        command=lambda values: clones_of(values, checkpoint).command_for(sandbox.name),
        problems=_clone_problems,
    )


def clones_of(values: Values, checkpoint: CheckpointView | None = None) -> SandboxVerb[Any]:
    """Returns what the form asks for. If the count is not a number, it is 1."""
    count = values["count"]
    spec = CloneSpec(
        count=int(count) if count.isascii() and count.isdigit() else 1,
        at=None if checkpoint is None else checkpoint.id,
        mounts=values.get("mounts", ""),
    )
    return starting.clone(spec, shown_at="" if checkpoint is None else checkpoint.name)


def _clone_problems(values: Values, now: World) -> Mapping[str, str]:
    count = values["count"]
    most = clones_max()
    if count.isascii() and count.isdigit() and 1 <= int(count) <= most:
        return {}
    return {"count": f"a number from 1 to {most}"}
