"""Reasons why actions are not possible now: one pure function each, worded for a toast."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from quicksand.things.status import (
    CAN_BE_COPIED,
    CAN_END,
    CAN_START,
    HAS_MACHINE,
    RUNS,
    MountState,
    Status,
)

from quicksand_tui.model.jobs import Job, JobVerb
from quicksand_tui.model.world import MachineState, Panel, Selection, World
from quicksand_tui.verbs.call import command_words, shown_command
from quicksand_tui.views.job_rows import DOING
from quicksand_tui.views.sandbox_rows import pause_text
from quicksand_tui.views.save_rows import names_text, trouble_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from quicksand.things.save import SaveFacts, TrashFacts

    from quicksand_tui.model.shown_sandboxes import SandboxView


Reason = Callable[[World, Selection], str | None]
"""Returns why an action is not possible now; None if it is."""


def _none(world: World, what: str) -> str:
    if not world.saves.loaded:
        return "the saves are just being read"
    return f"no save is {what}"


def away(view: SaveFacts | TrashFacts) -> str | None:
    """Returns that its machine does not answer, so that nothing can be done with it."""
    return f"{view.host} is away: {view.short_name} is shown as it was" if view.away else None


def _busy_save(world: World, key: str, name: str) -> str | None:
    job = world.job_about(key)
    return None if job is None else f"{name}: {DOING.get(job.verb, job.verb.value)} is under way"


def _only(world: World, selection: Selection, doing: str) -> tuple[SaveFacts | None, str]:
    """Returns the save for an action on one save, or None and the reason why there is none."""
    if len(selection.marked) > 1:
        return None, f"{len(selection.marked)} are marked: {doing} takes one at a time"
    if not selection.saves:
        return None, _none(world, "selected")
    return selection.saves[0], ""


def begin(world: World, selection: Selection) -> str | None:
    save, why = _only(world, selection, "a start")
    if save is None:
        return why
    if save.away:
        return away(save)
    trouble, problems = trouble_of(save)
    if trouble:
        return f"{save.name} cannot be used: {problems[0] if problems else trouble}"
    job = world.job_about(save.key)
    is_going = job is not None and job.verb is JobVerb.DISCARD
    return f"{save.name} is just being removed" if is_going else None


def export(world: World, selection: Selection) -> str | None:
    save, why = _only(world, selection, "an export")
    if save is None:
        return why
    if save.host:
        there = f"not from here: {save.short_name} is on {save.host}"
        name = command_words("export", name=save.address, file="FILE")
        return f"{there}; `{shown_command(name, save.host)}` writes it to a file here"
    if trouble_of(save)[0] == "damaged":
        return f"{save.name} is damaged: it would arrive so"
    return _busy_save(world, save.key, save.name)


def discard(world: World, selection: Selection) -> str | None:
    if (why := several(world, selection)) is not None:
        return why
    if len(selection.saves) == 1 and (above := selection.saves[0].above):
        return f"{selection.saves[0].name} is needed: {names_text(above)} is based on it"
    return None


def several(world: World, selection: Selection) -> str | None:
    """Checks an action on one or more saves that must not be busy with another job."""
    if not selection.saves:
        return _none(world, "selected")
    busy = (away(save) or _busy_save(world, save.key, save.name) for save in selection.saves)
    return next((why for why in busy if why is not None), None)


def import_(world: World, selection: Selection) -> str | None:
    if not (host := selection.machine):
        return None
    there = shown_command(command_words("import", file="FILE"), host)
    return f"from here files are imported on this machine only; `{there}` does it on {host}"


def prune(world: World, selection: Selection) -> str | None:
    """Checks pruning the saves of the machine under the cursor."""
    machine = world.machine(selection.machine)
    if machine is None:
        return listed(world, selection)
    if machine.state is not MachineState.THERE:
        return f"{machine.name} cannot be reached now"
    part = world.saves.of(machine.name)
    if not part.loaded:
        return f"the saves of {machine.name} are just being read"
    return None if part.saves else f"no save is on {machine.name}"


def selected(world: World, selection: Selection) -> str | None:
    return None if selection.save is not None else _none(world, "selected")


def listed(world: World, selection: Selection) -> str | None:
    return None if world.saves.saves else _none(world, "there yet")


def cancel_saving(world: World, selection: Selection) -> str | None:
    job = job_to_cancel(world, selection)
    if job is None:
        return "nothing is under way"
    return "it is being cancelled" if job.cancelling else None


def job_to_cancel(world: World, selection: Selection) -> Job | None:
    """Returns the job on the save under the cursor, or else the first job on any save."""
    for view in (selection.save, selection.trashed):
        if view is not None and (job := world.job_about(view.key)) is not None:
            return job
    return next(iter(world.save_jobs), None)


# The trash


def trashed(world: World, selection: Selection) -> str | None:
    if not selection.trash:
        return _none_in_trash(world)
    busy = (away(found) or _busy_save(world, found.key, found.name) for found in selection.trash)
    return next((why for why in busy if why is not None), None)


def in_trash(world: World, selection: Selection) -> str | None:
    return None if selection.trashed is not None else _none_in_trash(world)


def trash_listed(world: World, selection: Selection) -> str | None:
    return None if world.saves.trash else _none_in_trash(world)


def _none_in_trash(world: World) -> str:
    if not world.saves.loaded:
        return "the trash is just being read"
    return "nothing is selected" if world.saves.trash else "nothing is in the trash"


NO_IMAGE = "there is no image yet: {install} installs one, `quicksand-tui setup` builds debian"
READING = "the store is still being read"
READ_ONLY = "read-only: this app was told to change nothing"


def always(world: World, selection: Selection) -> str | None:
    return None


def _selected(world: World, selection: Selection) -> tuple[SandboxView | None, str]:
    """Returns the selected sandbox, or None and the reason why there is none."""
    if selection.panel is Panel.IMAGES:
        return None, "an image is selected: 1 goes to the sandboxes"
    if selection.panel is Panel.SAVES:
        shows = world.keymap.hint("saves")
        return None, f"a save is selected: {shows} shows what can be done with saves"
    if selection.sandbox is None:
        return None, "no sandbox is selected"
    if selection.sandbox.away:
        return None, _away(selection.sandbox)
    return selection.sandbox, ""


def _away(sandbox: SandboxView) -> str:
    return f"{sandbox.host} is away: {sandbox.short_name} is shown as it was"


def _busy(world: World, sandbox: SandboxView) -> str | None:
    if sandbox.away:
        return _away(sandbox)
    job = world.job(sandbox.id)
    if job is None:
        return None
    can = job.verb in _CANCELLABLE and not job.cancelling
    way = f": {world.keymap.hint('cancel')} cancels that" if can else ""
    return f"{sandbox.name} is being {_DOING.get(job.verb, 'changed')}{way}"


_CANCELLABLE = (JobVerb.START, JobVerb.SAVE)
_DOING = {
    JobVerb.START: "started",
    JobVerb.STOP: "stopped",
    JobVerb.KILL: "stopped",
    JobVerb.PAUSE: "paused",
    JobVerb.RESUME: "resumed",
    JobVerb.DELETE: "deleted",
    JobVerb.CHECKPOINT: "checkpointed",
    JobVerb.REVERT: "reverted",
    JobVerb.UNDO: "reverted",
    JobVerb.REMOVE: "changed: a checkpoint is deleted",
    JobVerb.CLONE: "cloned",
    JobVerb.MOUNT: "changed: a directory is mounted",
    JobVerb.UNMOUNT: "changed: a directory is unmounted",
    JobVerb.SAVE: "saved",
}


def find_wrong_state(states: Collection[Status], world: World, selection: Selection) -> str | None:
    """Returns why nothing can be done that needs a sandbox in one of these states, without a
    running job."""
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    return _busy(world, sandbox) or _not_in(states, world, sandbox)


def _not_in(states: Collection[Status], world: World, sandbox: SandboxView) -> str | None:
    """Returns why an action is not possible in the present state of a sandbox."""
    state, name, hint = sandbox.state, sandbox.name, world.keymap.hint
    if state in states:
        return None
    if state in _NO_MACHINE:
        return f"{name} {_NO_MACHINE[state]}"
    if state is Status.PAUSED:
        resumes = f"{hint('pause')} resumes it"
        return f"{name} is {pause_text(sandbox, resumes)}"
    if state is Status.RUNNING:
        return f"{name} is already running"
    if states == CAN_END:
        return f"{name} does not run"
    has_tree = states == HAS_MACHINE and sandbox.tree.checkpoints
    at = f"; {hint('revert')} starts it at a checkpoint" if has_tree else ""
    return f"{name} does not run: {hint('start')} starts it{at}"


_NO_MACHINE = {
    Status.STARTING: "is still starting",
    Status.STOPPING: "is just stopping",
    Status.DELETING: "is being deleted",
    Status.UNREACHABLE: "cannot be reached: its sockets are gone",
    Status.BROKEN: "is broken",
}

has_guest = partial(find_wrong_state, RUNS)
has_machine = partial(find_wrong_state, HAS_MACHINE)
can_start = partial(find_wrong_state, CAN_START)
can_end = partial(find_wrong_state, CAN_END)
can_be_copied = partial(find_wrong_state, CAN_BE_COPIED)


def run(world: World, selection: Selection) -> str | None:
    """Checks a command, which needs a guest that answers; jobs of the sandbox do not matter."""
    sandbox, why = _selected(world, selection)
    return why if sandbox is None else _not_in(RUNS, world, sandbox)


def kill(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is not None:
        job = world.job(sandbox.id)
        if job is not None and job.verb is JobVerb.STOP:
            return None  # the user need not wait for the guest
    return why if sandbox is None else can_end(world, selection)


def new(world: World, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES and selection.image and selection.image.error:
        return f"the image {selection.image.name} is broken"
    machine = world.machine(selection.machine)
    if machine is not None and selection.panel is Panel.SANDBOXES:
        if machine.state is not MachineState.THERE:
            return f"{machine.name} cannot be reached now"
        return None if machine.images else f"there is no image on {machine.name} yet"
    if world.usable_images:
        return None
    return NO_IMAGE.format(install=world.keymap.hint("install")) if world.knows_images else READING


def uninstall(world: World, selection: Selection) -> str | None:
    return None if selection.panel is Panel.IMAGES and selection.image else "select an image first"


def shell(world: World, selection: Selection) -> str | None:
    """Checks a shell, which waits for the current job if the guest can answer after it."""
    sandbox, why = _selected(world, selection)
    if sandbox is not None and (job := world.job(sandbox.id)) is not None:
        return None if job.verb not in _ENDING else _busy(world, sandbox)
    return why if sandbox is None else has_guest(world, selection)


_ENDING = {JobVerb.STOP, JobVerb.KILL, JobVerb.DELETE}


def desktop(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    if not sandbox.has_display:
        return f"{sandbox.name} has no display; `run --display` makes a sandbox with one"
    return None


def open_(world: World, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES:
        if selection.image is None:
            return "no image is selected"
        return new(world, selection)
    if selection.panel is Panel.SAVES:
        save = selection.save
        return "no save is selected" if save is None else away(save)
    if can_start(world, selection) is None:
        return None
    if selection.sandbox is not None and selection.sandbox.state is Status.PAUSED:
        return has_machine(world, selection)
    return shell(world, selection)


def delete_any(world: World, selection: Selection) -> str | None:
    """Checks deleting the selection of the list: a save, or any of the sandboxes."""
    if selection.panel is Panel.SAVES:
        return discard(world, selection)
    marked = [delete(world, selection.of(view)) for view in selection.marked_sandboxes]
    whys = marked or [delete(world, selection)]
    return None if None in whys else whys[0]


def delete(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    if busy := _busy(world, sandbox):
        return busy
    if sandbox.state is Status.STARTING:
        return f"{sandbox.name} is being started by another program"
    return None


def log(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    return why if sandbox is None else None


def cancel(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    job = world.job(sandbox.id)
    if job is None:
        return f"nothing is under way for {sandbox.name}"
    if job.cancelling:
        return "it is being cancelled"
    if job.verb in _CANCELLABLE:
        return None
    kill_ = f"; {world.keymap.hint('kill')} ends it at once" if job.verb is JobVerb.STOP else ""
    return f"only a start or a save can be cancelled{kill_}"


def undo(world: World, selection: Selection) -> str | None:
    if world.removed:
        return None
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    if (reason := has_machine(world, selection)) is not None:
        return reason
    if sandbox.tree.undo_goes_to is None:
        return f"{sandbox.name} was never reverted: there is nothing to undo"
    return None


def to_tree(world: World, selection: Selection) -> str | None:
    """Returns why there is no checkpoint to choose."""
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    if not sandbox.tree.checkpoints:
        when = "" if sandbox.is_live else " while it runs"
        checkpoint_ = world.keymap.hint("checkpoint")
        return f"{sandbox.name} has no checkpoint: {checkpoint_} takes one{when}"
    if selection.in_tree:
        return "choose a checkpoint here: enter goes to it"
    return None


def clone_there(world: World, selection: Selection) -> str | None:
    return go_there(world, selection) or can_be_copied(world, selection)


def mount(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    if (reason := has_guest(world, selection)) is not None:
        return reason
    if sandbox.network == "none":
        return f"{sandbox.name} has no network card, which mounts need"
    return None


def unmount(world: World, selection: Selection) -> str | None:
    chosen = selection.mount
    if chosen is None:
        return "no mount is selected"
    if chosen.state is MountState.AT_START:
        return f"{chosen.guest} is not mounted now, only at the next start"
    return has_guest(world, selection)


def unforward(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    if sandbox.forwards or sandbox.udp_forwards:
        return _busy(world, sandbox)
    if sandbox.ports or sandbox.udp_ports:
        return f"the forwards of {sandbox.name} are those of its start, and end with it"
    return _no_port(world, sandbox)


def copy_port(world: World, selection: Selection) -> str | None:
    sandbox, why = _selected(world, selection)
    if sandbox is None:
        return why
    return None if sandbox.ports or sandbox.udp_ports else _no_port(world, sandbox)


def _no_port(world: World, sandbox: SandboxView) -> str:
    key = world.keymap.hint("forward")
    when = "" if sandbox.is_live else ", while it runs"
    return f"no port is forwarded to {sandbox.name}: {key} forwards one{when}"


def copy_mount(world: World, selection: Selection) -> str | None:
    return None if selection.mount is not None else "no mount is selected"


def wall(world: World, selection: Selection) -> str | None:
    if any(view.is_live for view in world.sandboxes):
        return None
    return f"nothing is running: {world.keymap.hint('start')} starts a stopped sandbox"


def on_wall(world: World, selection: Selection) -> str | None:
    return None if selection.sandbox is not None else "there is no tile here"


def mark(world: World, selection: Selection) -> str | None:
    if selection.panel is not Panel.SANDBOXES:
        return "only sandboxes can be marked here"
    return None if selection.sandbox is not None else "no sandbox is selected"


def go_there(world: World, selection: Selection) -> str | None:
    """Checks only the choice in the tree; the operation itself checks the machine's state."""
    chosen = selection.checkpoint
    if chosen is None or selection.sandbox is None:
        return "no checkpoint is selected"
    if chosen.error:
        return f"this checkpoint cannot be read: {chosen.error}"
    return _busy(world, selection.sandbox)


def diff(world: World, selection: Selection) -> str | None:
    """Checks comparing checkpoints, which is possible during any job, since it only reads."""
    if selection.sandbox is None or selection.checkpoint is None:
        return "no checkpoint is selected"
    if selection.sandbox.away:
        return _away(selection.sandbox)
    return "it cannot be read" if selection.checkpoint.error else None


def compare(world: World, selection: Selection) -> str | None:
    if selection.checkpoint is None or selection.sandbox is None:
        return "no checkpoint is selected"
    if selection.sandbox.away:
        return _away(selection.sandbox)
    name = selection.sandbox.name
    return None if selection.sandbox.has_display else f"{name} has no display, so no pictures"


def look(world: World, selection: Selection) -> str | None:
    chosen = selection.checkpoint
    if chosen is not None and chosen.error:
        return f"this checkpoint cannot be read: {chosen.error}"
    return compare(world, selection)


def remove(world: World, selection: Selection) -> str | None:
    chosen = selection.checkpoint
    if chosen is not None and chosen.error:
        return "it cannot be read, so others may need it"
    if chosen is not None and chosen.pinned:
        return f"{chosen.tag} is pinned: {world.keymap.hint('pin', 'tree')} lets it be deleted"
    return go_there(world, selection)


def copy(world: World, selection: Selection) -> str | None:
    if selection.panel is Panel.IMAGES:
        return None if selection.image is not None else "no image is selected"
    if selection.panel is Panel.SAVES:
        return None if selection.save is not None else "no save is selected"
    return None if selection.sandbox is not None else "no sandbox is selected"


def filter_(world: World, selection: Selection) -> str | None:
    there = {
        Panel.SANDBOXES: (world.sandboxes, "sandbox"),
        Panel.SAVES: (world.saves.saves, "save"),
        Panel.IMAGES: (world.images, "image"),
    }
    found, what = there[selection.panel]
    return None if found else f"there is no {what} yet"
