"""The forms about checkpoints: a new one, a note, clones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from quicksand_tui.actions import Scope, find_action
from quicksand_tui.form import Field, Form, Values
from quicksand_tui.past import NOTE_LIMIT, CheckpointView
from quicksand_tui.spec import checkpoint_command, clone_command, find_tag_problem
from quicksand_tui.specs import CheckpointSpec, CloneSpec
from quicksand_tui.text import TITLE_CELLS, clip, sanitise

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.snapshot import Snapshot

CLONES_MAX = 100
TAG_LIMIT = 128


def checkpoint_form(sandbox: SandboxView) -> Form:
    """Of a checkpoint of the present; tag and note may stay empty."""

    def problems(values: Values, now: Snapshot) -> Mapping[str, str]:
        past = (now.sandbox(sandbox.id) or sandbox).past
        problem = find_tag_problem(values["tag"], past)
        return {"tag": problem} if problem else {}

    return Form(
        title=f"Checkpoint of {sandbox.name}",
        does="takes it",
        button="Take it",
        fields=(
            Field(id="tag", label="Tag", hint="without one it is numbered", limit=TAG_LIMIT),
            Field(id="note", label="Note", hint="what it is", limit=NOTE_LIMIT),
        ),
        command=lambda values: checkpoint_command(sandbox.name, checkpoint_spec(values)),
        problems=problems,
    )


def checkpoint_spec(values: Values) -> CheckpointSpec:
    return CheckpointSpec(tag=values["tag"], note=values["note"])


def note_form(sandbox: SandboxView, made: CheckpointView) -> Form:
    def command(values: Values) -> str:
        action = find_action("note", Scope.TREE)
        return sanitise(action.command_for(sandbox.name, made.name, values["note"]), limit=2000)

    return Form(
        title=f"Note of {clip(made.tag, TITLE_CELLS)}",
        does="writes it",
        button="Write",
        fields=(Field(id="note", label="Note", value=made.note, limit=NOTE_LIMIT, hint="none"),),
        command=command,
        problems=lambda values, now: {},
    )


def clone_form(sandbox: SandboxView, made: CheckpointView | None = None) -> Form:
    """Clones of the present, or of a checkpoint."""
    what = sandbox.name if made is None else f"{sandbox.name} at {made.tag}"
    return Form(
        title=f"Clones of {clip(what, TITLE_CELLS)}",
        does="makes them",
        button="Clone",
        fields=(Field(id="count", label="How many", value="1", limit=3),),
        command=lambda values: clone_command(sandbox.name, clone_spec(values, made), made),
        problems=_clone_problems,
    )


def clone_spec(values: Values, made: CheckpointView | None) -> CloneSpec:
    """Of checked values; of others, one clone."""
    count = values["count"]
    return CloneSpec(
        count=int(count) if count.isascii() and count.isdigit() else 1,
        at="" if made is None else made.id,
    )


def _clone_problems(values: Values, now: Snapshot) -> Mapping[str, str]:
    count = values["count"]
    if count.isascii() and count.isdigit() and 1 <= int(count) <= CLONES_MAX:
        return {}
    return {"count": f"a number from 1 to {CLONES_MAX}"}
