"""Reasons why actions on saves are not possible now: one pure function each, worded for a toast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.jobs import Job, JobVerb
from quicksand_tui.views.saves import DOING, names_text, trouble_of

if TYPE_CHECKING:
    from quicksand_tui.model.saves import SaveView
    from quicksand_tui.model.world import Selection, World


def _none(world: World, what: str) -> str:
    if not world.saves.loaded:
        return "the saves are just being read"
    return f"no save is {what}"


def _busy(world: World, key: str, name: str) -> str | None:
    job = world.job_about(key)
    return None if job is None else f"{name}: {DOING.get(job.verb, job.verb.value)} is under way"


def _only(world: World, selection: Selection, doing: str) -> tuple[SaveView | None, str]:
    """Returns the save for an action on one save, or None and why there is none."""
    if len(selection.marked) > 1:
        return None, f"{len(selection.marked)} are marked: {doing} takes one at a time"
    if not selection.saves:
        return None, _none(world, "selected")
    return selection.saves[0], ""


def begin(world: World, selection: Selection) -> str | None:
    save, why = _only(world, selection, "a start")
    if save is None:
        return why
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
    if trouble_of(save)[0] == "damaged":
        return f"{save.name} is damaged: it would arrive so"
    return _busy(world, save.key, save.name)


def discard(world: World, selection: Selection) -> str | None:
    if (why := several(world, selection)) is not None:
        return why
    if len(selection.saves) == 1 and (above := selection.saves[0].above):
        return f"{selection.saves[0].name} is needed: {names_text(above)} lies on it"
    return None


def several(world: World, selection: Selection) -> str | None:
    """Checks an action on one or more saves that must not be busy with another job."""
    if not selection.saves:
        return _none(world, "selected")
    busy = (_busy(world, save.key, save.name) for save in selection.saves)
    return next((why for why in busy if why is not None), None)


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
    busy = (_busy(world, found.key, found.name) for found in selection.trash)
    return next((why for why in busy if why is not None), None)


def in_trash(world: World, selection: Selection) -> str | None:
    return None if selection.trashed is not None else _none_in_trash(world)


def _none_in_trash(world: World) -> str:
    if not world.saves.loaded:
        return "the trash is just being read"
    return "nothing is selected" if world.saves.trash else "nothing is in the trash"
