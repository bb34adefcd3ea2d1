"""Why an action on saves is not possible now: one function for each, pure, worded for a toast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.saves_view import DOING, names_text, trouble_of
from quicksand_tui.snapshot import Job, Selection, Snapshot, Verb

if TYPE_CHECKING:
    from quicksand_tui.saved import SaveView


def _none(snapshot: Snapshot, what: str) -> str:
    if not snapshot.saves.loaded:
        return "the saves are just being read"
    return f"no save is {what}"


def _busy(snapshot: Snapshot, key: str, name: str) -> str | None:
    job = snapshot.job_about(key)
    return None if job is None else f"{name}: {DOING.get(job.verb, job.verb.value)} is under way"


def _only(snapshot: Snapshot, selection: Selection, doing: str) -> tuple[SaveView | None, str]:
    """The save for what takes one, or why there is none."""
    if len(selection.marked) > 1:
        return None, f"{len(selection.marked)} are marked: {doing} takes one at a time"
    if not selection.saves:
        return None, _none(snapshot, "selected")
    return selection.saves[0], ""


def begin(snapshot: Snapshot, selection: Selection) -> str | None:
    save, why = _only(snapshot, selection, "a start")
    if save is None:
        return why
    trouble, problems = trouble_of(save)
    if trouble:
        return f"{save.name} cannot be used: {problems[0] if problems else trouble}"
    job = snapshot.job_about(save.key)
    is_going = job is not None and job.verb is Verb.DISCARD
    return f"{save.name} is just being removed" if is_going else None


def export(snapshot: Snapshot, selection: Selection) -> str | None:
    save, why = _only(snapshot, selection, "an export")
    if save is None:
        return why
    if trouble_of(save)[0] == "damaged":
        return f"{save.name} is damaged: it would arrive so"
    return _busy(snapshot, save.key, save.name)


def discard(snapshot: Snapshot, selection: Selection) -> str | None:
    if (why := several(snapshot, selection)) is not None:
        return why
    if len(selection.saves) == 1 and (above := selection.saves[0].above):
        return f"{selection.saves[0].name} is needed: {names_text(above)} lies on it"
    return None


def several(snapshot: Snapshot, selection: Selection) -> str | None:
    """What can be done with one or more that nothing else is done with."""
    if not selection.saves:
        return _none(snapshot, "selected")
    busy = (_busy(snapshot, save.key, save.name) for save in selection.saves)
    return next((why for why in busy if why is not None), None)


def selected(snapshot: Snapshot, selection: Selection) -> str | None:
    return None if selection.save is not None else _none(snapshot, "selected")


def listed(snapshot: Snapshot, selection: Selection) -> str | None:
    return None if snapshot.saves.saves else _none(snapshot, "there yet")


def cancel(snapshot: Snapshot, selection: Selection) -> str | None:
    job = job_to_cancel(snapshot, selection)
    if job is None:
        return "nothing is under way"
    return "it is being cancelled" if job.cancelling else None


def job_to_cancel(snapshot: Snapshot, selection: Selection) -> Job | None:
    """What is done with the save under the cursor, else the first of all."""
    for view in (selection.save, selection.trashed):
        if view is not None and (job := snapshot.job_about(view.key)) is not None:
            return job
    return next(iter(snapshot.save_jobs), None)


# The trash


def trashed(snapshot: Snapshot, selection: Selection) -> str | None:
    if not selection.trash:
        return _none(snapshot, "in the trash" if not snapshot.saves.trash else "selected")
    busy = (_busy(snapshot, found.key, found.name) for found in selection.trash)
    return next((why for why in busy if why is not None), None)


def in_trash(snapshot: Snapshot, selection: Selection) -> str | None:
    return None if selection.trashed is not None else _none(snapshot, "in the trash")
