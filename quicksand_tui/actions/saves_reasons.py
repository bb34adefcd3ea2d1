"""Reasons why actions on saves are not possible now: one pure function each, worded for a toast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import Job, JobVerb
from quicksand_tui.model.world import MachineState
from quicksand_tui.verbs.shown_commands import command_words, shown_command
from quicksand_tui.views.job_rows import DOING
from quicksand_tui.views.save_rows import names_text, trouble_of

if TYPE_CHECKING:
    from quicksand.things.save import SaveFacts, TrashFacts

    from quicksand_tui.model.world import Selection, World


def _none(world: World, what: str) -> str:
    if not world.saves.loaded:
        return "the saves are just being read"
    return f"no save is {what}"


def away(view: SaveFacts | TrashFacts) -> str | None:
    """Returns that its machine does not answer, so that nothing can be done with it."""
    return f"{view.host} is away: {view.short_name} is shown as it was" if view.away else None


def _busy(world: World, key: str, name: str) -> str | None:
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
    return _busy(world, save.key, save.name)


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
    busy = (away(save) or _busy(world, save.key, save.name) for save in selection.saves)
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


def cancel(world: World, selection: Selection) -> str | None:
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
    busy = (away(found) or _busy(world, found.key, found.name) for found in selection.trash)
    return next((why for why in busy if why is not None), None)


def in_trash(world: World, selection: Selection) -> str | None:
    return None if selection.trashed is not None else _none_in_trash(world)


def trash_listed(world: World, selection: Selection) -> str | None:
    return None if world.saves.trash else _none_in_trash(world)


def _none_in_trash(world: World) -> str:
    if not world.saves.loaded:
        return "the trash is just being read"
    return "nothing is selected" if world.saves.trash else "nothing is in the trash"
