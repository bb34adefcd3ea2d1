"""Why an action is not possible now: one function for each, pure, worded for a toast."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from quicksand_tui import saves_reasons
from quicksand_tui.snapshot import Panel, Selection, Snapshot, State, Verb

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView

Reason = Callable[[Snapshot, Selection], str | None]
"""Why an action is not possible now; None if it is."""

NO_IMAGE = "there is no image yet: `quicksand-tui setup` gets one"
READ_ONLY = "read-only: this app was told to change nothing"


def each(reason: Reason) -> Reason:
    """Of an action on all marked sandboxes: it is possible if it is for one of them."""

    def of_marked(snapshot: Snapshot, selection: Selection) -> str | None:
        reasons = [reason(snapshot, selection.of(view)) for view in selection.marked_sandboxes]
        if not reasons:
            return reason(snapshot, selection)
        return None if None in reasons else reasons[0]

    return of_marked


def always(snapshot: Snapshot, selection: Selection) -> str | None:
    return None


def guarded(reason: Reason) -> Reason:
    """The reason of an action that changes something."""

    def refuse(snapshot: Snapshot, selection: Selection) -> str | None:
        return READ_ONLY if snapshot.read_only else reason(snapshot, selection)

    return refuse


def _selected(snapshot: Snapshot, selection: Selection) -> tuple[SandboxView | None, str]:
    """The selected sandbox, or why there is none."""
    if selection.panel is Panel.IMAGES:
        return None, "an image is selected: 1 goes to the sandboxes"
    if selection.panel is Panel.SAVES:
        shows = snapshot.keymap.hint("saves")
        return None, f"a save is selected: {shows} shows what can be done with saves"
    if selection.sandbox is None:
        return None, "no sandbox is selected"
    return selection.sandbox, ""


def _busy(snapshot: Snapshot, sandbox: SandboxView) -> str | None:
    job = snapshot.job(sandbox.id)
    if job is None:
        return None
    return f"{sandbox.name} is just being {_DOING[job.verb]}"


_DOING = {
    Verb.START: "started",
    Verb.STOP: "stopped",
    Verb.KILL: "stopped",
    Verb.PAUSE: "paused",
    Verb.RESUME: "resumed",
    Verb.DELETE: "deleted",
    Verb.CHECKPOINT: "kept as a checkpoint",
    Verb.REVERT: "reverted",
    Verb.UNDO: "reverted",
    Verb.REMOVE: "changed: a checkpoint is deleted",
    Verb.CLONE: "cloned",
    Verb.PIN: "changed",
    Verb.NOTE: "changed",
    Verb.SAVE: "saved",
}


def new(snapshot: Snapshot, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES and selection.image and selection.image.error:
        return f"the image {selection.image.name} is broken"
    return None if snapshot.usable_images else NO_IMAGE


def shell(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state is State.RUNNING:
        return None
    return _no_guest(snapshot, sandbox)


def run(snapshot: Snapshot, selection: Selection) -> str | None:
    """A command needs a guest that answers; what else is done with it does not matter."""
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    return None if sandbox.state is State.RUNNING else _no_guest(snapshot, sandbox)


def _no_guest(snapshot: Snapshot, sandbox: SandboxView) -> str:
    if sandbox.state is State.PAUSED:
        return f"{sandbox.name} is paused: {snapshot.keymap.hint('pause')} lets it go on"
    if sandbox.state in _NO_MACHINE:
        return f"{sandbox.name} {_NO_MACHINE[sandbox.state]}"
    return f"{sandbox.name} does not run: {snapshot.keymap.hint('start')} starts it"


def start(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state in (State.STOPPED, State.CRASHED):
        return None
    if sandbox.state is State.PAUSED:
        return f"{sandbox.name} is paused: {snapshot.keymap.hint('pause')} lets it go on"
    return f"{sandbox.name} is {_already(sandbox.state)}"


def _already(state: State) -> str:
    return state.value if state is State.BROKEN else f"already {state.value}"


def open_(snapshot: Snapshot, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES:
        if selection.image is None:
            return "no image is selected"
        return new(snapshot, selection)
    if selection.panel is Panel.SAVES:
        return None if selection.save is not None else "no save is selected"
    if start(snapshot, selection) is None:
        return None
    if selection.sandbox is not None and selection.sandbox.state is State.PAUSED:
        return pause_or_resume(snapshot, selection)
    return shell(snapshot, selection)


def pause_or_resume(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state in (State.RUNNING, State.PAUSED):
        return None
    return f"{sandbox.name} does not run"


def stop(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state in (State.RUNNING, State.PAUSED):
        return None
    if sandbox.state is State.STARTING:
        return f"{sandbox.name} is being started by another program"
    return f"{sandbox.name} does not run"


def kill(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is not None:
        job = snapshot.job(sandbox.id)
        if job is not None and job.verb is Verb.STOP:
            return None  # who does not want to wait for the guest
    return why if sandbox is None else stop(snapshot, selection)


def delete_any(snapshot: Snapshot, selection: Selection) -> str | None:
    """Of what is listed: a save, or each of the sandboxes."""
    if selection.panel is Panel.SAVES:
        return saves_reasons.discard(snapshot, selection)
    return each(delete)(snapshot, selection)


def delete(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if busy := _busy(snapshot, sandbox):
        return busy
    if sandbox.state is State.STARTING:
        return f"{sandbox.name} is being started by another program"
    return None


def log(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    return why if sandbox is None else None


def cancel(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    job = snapshot.job(sandbox.id)
    if job is None:
        return f"nothing is under way for {sandbox.name}"
    if job.cancelling:
        return "it is being cancelled"
    if job.verb not in (Verb.START, Verb.SAVE):
        kill_ = f"; {snapshot.keymap.hint('kill')} ends it at once"
        return "only a start or a save can be cancelled" + (kill_ if job.verb is Verb.STOP else "")
    return None


def save(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if sandbox.state in _NO_MACHINE:
        return f"{sandbox.name} {_NO_MACHINE[sandbox.state]}"
    return _busy(snapshot, sandbox)


def checkpoint(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    return _busy(snapshot, sandbox) or _needs_machine(snapshot, sandbox)


def _needs_machine(snapshot: Snapshot, sandbox: SandboxView) -> str | None:
    """Why what needs a machine, be it a paused one, is not possible."""
    if sandbox.state in (State.RUNNING, State.PAUSED):
        return None
    if sandbox.state in _NO_MACHINE:
        return f"{sandbox.name} {_NO_MACHINE[sandbox.state]}"
    hint = snapshot.keymap.hint
    at = f"; {hint('revert')} starts it at a checkpoint" if sandbox.past.checkpoints else ""
    return f"{sandbox.name} does not run: {hint('start')} starts it{at}"


_NO_MACHINE = {State.STARTING: "is still starting", State.BROKEN: "is broken"}


def undo(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if (reason := checkpoint(snapshot, selection)) is not None:
        return reason
    if sandbox.past.undo_goes_to is None:
        return f"{sandbox.name} was never reverted: there is nothing to undo"
    return None


def to_tree(snapshot: Snapshot, selection: Selection) -> str | None:
    """Why there is no checkpoint to choose."""
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if not sandbox.past.checkpoints:
        when = "" if sandbox.is_live else " while it runs"
        checkpoint_ = snapshot.keymap.hint("checkpoint")
        return f"{sandbox.name} has no checkpoint: {checkpoint_} takes one{when}"
    return None


def clone(snapshot: Snapshot, selection: Selection) -> str | None:
    sandbox, why = _selected(snapshot, selection)
    if sandbox is None:
        return why
    if sandbox.state in _NO_MACHINE:
        return f"{sandbox.name} {_NO_MACHINE[sandbox.state]}"
    return _busy(snapshot, sandbox)


def clone_there(snapshot: Snapshot, selection: Selection) -> str | None:
    return go_there(snapshot, selection) or clone(snapshot, selection)


def mark(snapshot: Snapshot, selection: Selection) -> str | None:
    if selection.panel is not Panel.SANDBOXES:
        return "only sandboxes can be marked here"
    return None if selection.sandbox is not None else "no sandbox is selected"


def go_there(snapshot: Snapshot, selection: Selection) -> str | None:
    """In the tree; whether the machine is in the right state, the operations say."""
    made = selection.checkpoint
    if made is None or selection.sandbox is None:
        return "no checkpoint is selected"
    if made.error:
        return f"this checkpoint cannot be read: {made.error}"
    return _busy(snapshot, selection.sandbox)


def remove(snapshot: Snapshot, selection: Selection) -> str | None:
    made = selection.checkpoint
    if made is not None and made.error:
        return "it cannot be read, so nobody knows what else needs it"
    if made is not None and made.pinned:
        return f"{made.tag} is pinned: {snapshot.keymap.hint('pin', 'tree')} lets it be deleted"
    return go_there(snapshot, selection)


def copy(snapshot: Snapshot, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES:
        return None if selection.image is not None else "no image is selected"
    if selection.panel is Panel.SAVES:
        return None if selection.save is not None else "no save is selected"
    return None if selection.sandbox is not None else "no sandbox is selected"


def filter_(snapshot: Snapshot, selection: Selection) -> str | None:
    there = {
        Panel.SANDBOXES: (snapshot.sandboxes, "sandbox"),
        Panel.SAVES: (snapshot.saves.saves, "save"),
        Panel.IMAGES: (snapshot.images, "image"),
    }
    found, what = there[selection.panel]
    return None if found else f"there is no {what} yet"
