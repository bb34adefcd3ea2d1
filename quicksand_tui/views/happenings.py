"""Events of sandboxes in the words of the app, with what its jobs add to them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from quicksand.things.frozen import frozen
from quicksand.things.status import MountState, Status

from quicksand_tui.model.amounts import pause_text, seconds_text
from quicksand_tui.model.happened import Fact, Happened, HappenedKind, differences, past_of
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import EventView
from quicksand_tui.model.text import clip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from quicksand_tui.model.jobs import EndedJob
    from quicksand_tui.model.world import World


TAG_CELLS = 60


@frozen(kw_only=False)
class Happening:
    """One event of a sandbox."""

    when: float
    """Unix time when it happened, or when the app noticed it."""
    sandbox_id: str
    text: str


def happenings(before: World, after: World) -> Iterator[Happening]:
    """Yields the differences between two worlds, caused by this app, another one, or a script."""
    if not before.loaded or any(world.error and not world.sandboxes for world in (before, after)):
        return  # a sandbox that could not be read is not gone
    yield from (Happening(one.time, one.id, _text(one)) for one in differences(before, after))


def past(world: World) -> list[Happening]:
    """Returns the events that the disk tells from before the app began, the earliest first."""
    found = [
        Happening(one.time, one.id, _past_text(one))
        for one in past_of(world)
        if one.kind is not HappenedKind.STATE
    ]
    return sorted(found, key=lambda one: one.when)


def _past_text(event: Happened) -> str:
    if event.kind is HappenedKind.CREATED:
        return f"created, from {event.facts['image'] or '?'}"
    return _text(event)


WORDS: Final = {
    HappenedKind.CREATED: "new, {state}",
    HappenedKind.STATE: "{from} → {to}{why}",
    HappenedKind.RENAMED: "renamed from {from}",
    HappenedKind.CHECKPOINT: "{kind} {tag}",
    HappenedKind.CHECKPOINT_DELETED: "checkpoint {tag} is gone",
    HappenedKind.REVERTED: "reverted to {to}",
    HappenedKind.MOUNTED: "{host} at {guest}{mode}: {state}",
    HappenedKind.MOUNT_STATE: "{guest} is {state}",
    HappenedKind.UNMOUNTED: "{guest} is no longer mounted",
    HappenedKind.WROTE: "it wrote {path} in {host}, which programs of the host run",
}
MOUNTED: Final = "{host} is mounted at {guest}{mode}"
"""The words for a mount that is there already."""

CLIPPED: Final = ("tag", "to", "host", "guest")


def _text(event: Happened) -> str:
    """Returns an event in the words of the app."""
    facts, words = event.facts, WORDS.get(event.kind, event.kind.value)
    if event.kind is HappenedKind.MOUNTED and facts["state"] == MountState.MOUNTED.value:
        words = MOUNTED
    failed = facts.get("error") and facts["to"] != Status.RUNNING.value
    shown: dict[str, Fact] = {
        key: clip(str(facts[key]), TAG_CELLS) for key in CLIPPED if key in facts
    }
    if event.kind is HappenedKind.WROTE:
        shown = {}  # whole paths: the user has to look at the file
    more = {
        "why": f": {facts['error']}" if failed else "",
        "kind": "automatic checkpoint" if facts.get("auto") else "checkpoint",
        "mode": ", read-only" if facts.get("readonly") else "",
    }
    return words.format_map({**facts, **shown, **more})


SOON_S = 3.0
"""Seconds after the end of a job within which the disk tells its effect."""

EVENTS_MAX = 40
"""The most events of a sandbox that are shown."""


def events_of(
    sandbox_id: str, happened: Sequence[Happening], ended: Sequence[EndedJob]
) -> tuple[EventView, ...]:
    """Returns the last events of a sandbox, newest first. An event by a job of this app has the
    job's duration; a job of which the disk tells nothing, such as a command, is an event itself."""
    jobs = [one for one in ended if sandbox_id in one.job.sandboxes]
    found, told = [], set()
    for one in reversed(happened):
        if one.sandbox_id != sandbox_id:
            continue
        by = next((job for job in jobs if _did(job, one.when)), None)
        took = "" if by is None or by.number in told else _took(by.seconds)
        if by is not None:
            told.add(by.number)
        found.append(EventView(when=one.when, text=one.text, took=took))
        if len(found) == EVENTS_MAX:
            break
    for job in jobs:
        if job.number not in told:
            role = {"failed": "error", "cancelled": "muted"}.get(job.outcome, "")
            took = _took(job.seconds) if job.outcome == "done" else job.outcome
            found.append(EventView(when=job.ended, text=_words(job), took=took, role=role))
    return tuple(sorted(found, key=lambda event: -event.when)[:EVENTS_MAX])


def _did(job: EndedJob, when: float) -> bool:
    return job.ended - job.seconds <= when <= job.ended + SOON_S and job.outcome == "done"


def _words(job: EndedJob) -> str:
    if job.job.verb is JobVerb.RUN:
        return job.job.command.rpartition(" -- ")[2] or job.job.command
    return f"{job.job.verb.value} {job.told}".strip()


def _took(seconds: float) -> str:
    return pause_text(seconds) if seconds < 1 else seconds_text(seconds)


GLYPHS = {"done": "✓", "failed": "✗", "cancelled": "○"}


def last_commands(ended: Sequence[EndedJob]) -> dict[str, str]:
    """Returns the last command in each sandbox and its outcome, by id."""
    return {
        sandbox_id: f"{GLYPHS.get(job.outcome, '')} {_words(job)}"
        for job in ended
        if job.job.verb is JobVerb.RUN
        for sandbox_id in job.job.sandboxes
    }
