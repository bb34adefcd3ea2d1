"""Events of sandboxes: the differences between two worlds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from quicksand.things.frozen import frozen
from quicksand.things.status import MountState, Status

from quicksand_tui.model.amounts import pause_text, seconds_text
from quicksand_tui.model.jobs import JobVerb
from quicksand_tui.model.shown_sandboxes import EventView
from quicksand_tui.model.text import clip

if TYPE_CHECKING:
    from quicksand_tui.model.jobs import EndedJob
    from quicksand_tui.model.shown_checkpoints import CheckpointTree, CheckpointView
    from quicksand_tui.model.shown_sandboxes import SandboxView
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
    known = {view.id: view for view in before.sandboxes}
    for view in after.sandboxes:
        was = known.pop(view.id, None)
        if was is view:
            continue
        for text in _changes(was, view):
            yield Happening(after.taken, view.id, text)
    for gone in known:
        yield Happening(after.taken, gone, "deleted")


def past(world: World) -> list[Happening]:
    """Returns the events that the disk tells from before the app began, the earliest first."""
    found = []
    for view in world.sandboxes:
        if view.created is not None:
            found.append(Happening(view.created, view.id, f"created, from {view.image or '?'}"))
        found += [
            Happening(made.created, view.id, _taken(made))
            for made in view.tree.checkpoints
            if made.created
        ]
    return sorted(found, key=lambda one: one.when)


def _taken(checkpoint: CheckpointView) -> str:
    kind = "automatic checkpoint" if checkpoint.auto else "checkpoint"
    return f"{kind} {clip(checkpoint.tag, TAG_CELLS)}"


def _changes(was: SandboxView | None, view: SandboxView) -> Iterator[str]:
    if was is None:
        yield f"new, {view.state.value}"
        return
    if was.state is not view.state:
        why = f": {view.error}" if view.error and view.state is not Status.RUNNING else ""
        yield f"{was.state.value} → {view.state.value}{why}"
    if was.name != view.name:
        yield f"renamed from {was.name}"
    reverted = _is_reverted(was, view)
    if was.tree is not view.tree:
        yield from _tree_changes(was.tree, view.tree, tells_way=not reverted)
    if reverted:
        yield f"reverted to {clip(view.origin, TAG_CELLS)}"
    if was.mounts is not view.mounts:
        yield from _mount_changes(was, view)
        yield from _written(was, view)


def _written(was: SandboxView, view: SandboxView) -> Iterator[str]:
    """Yields the files written by the guest that programs of this host run."""
    before = {(mount.host, path) for mount in was.mounts for path in mount.told}
    for mount in view.mounts:
        for path in mount.told:
            if (mount.host, path) not in before:
                yield f"it wrote {path} in {mount.host}, which programs of the host run"


def _is_reverted(was: SandboxView, view: SandboxView) -> bool:
    """Whether another QEMU has replaced the former one. Nothing else tells of a revert to the
    checkpoint where the sandbox stood already."""
    return "" not in (was.run, view.run) and was.run != view.run and was.started == view.started


def _mount_changes(was: SandboxView, view: SandboxView) -> Iterator[str]:
    before = {mount.key: mount for mount in was.mounts}
    for mount in view.mounts:
        old = before.pop(mount.key, None)
        guest, host = clip(mount.guest, TAG_CELLS), clip(mount.host, TAG_CELLS)
        if old is None or (old.host, old.readonly) != (mount.host, mount.readonly):
            mode = ", read-only" if mount.readonly else ""
            if mount.state is MountState.MOUNTED:
                yield f"{host} is mounted at {guest}{mode}"
            else:  # Nothing is there yet.
                yield f"{host} at {guest}{mode}: {mount.state.value}"
        elif old.state is not mount.state:
            yield f"{guest} is {mount.state.value}"
    for gone in before.values():
        yield f"{clip(gone.guest, TAG_CELLS)} is no longer mounted"


def _tree_changes(was: CheckpointTree, now: CheckpointTree, *, tells_way: bool) -> Iterator[str]:
    """Yields changes of a tree; with ``tells_way``, also the sandbox's present position."""
    before = {checkpoint.id: checkpoint for checkpoint in was.checkpoints}
    fresh = [checkpoint for checkpoint in now.checkpoints if checkpoint.id not in before]
    yield from map(_taken, fresh)
    left = {checkpoint.id for checkpoint in now.checkpoints}
    for checkpoint in was.checkpoints:
        if checkpoint.id not in left:
            yield f"checkpoint {clip(checkpoint.tag, TAG_CELLS)} is gone"
    reached = now.find(now.head) if tells_way else None
    if now.head != was.head and reached is not None and reached.id in before:
        yield f"reverted to {clip(reached.tag, TAG_CELLS)}"


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
