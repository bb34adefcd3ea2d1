"""What has happened to sandboxes between two looks at the world: pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.snapshot import Snapshot, State
from quicksand_tui.text import clip

if TYPE_CHECKING:
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.past import PastView

TAG_CELLS = 60


@dataclass(frozen=True, slots=True)
class Happening:
    """A line of a sandbox's events."""

    when: float
    """Unix time at which it was seen."""
    sandbox_id: str
    text: str


def happenings(before: Snapshot, after: Snapshot) -> Iterator[Happening]:
    """What is different, whoever did it: this app, another instance, a script."""
    if not before.loaded:
        return
    known = {view.id: view for view in before.sandboxes}
    for view in after.sandboxes:
        was = known.pop(view.id, None)
        if was is view:
            continue
        for text in _changes(was, view):
            yield Happening(after.taken, view.id, text)
    for gone in known:
        yield Happening(after.taken, gone, "deleted")


def _changes(was: SandboxView | None, view: SandboxView) -> Iterator[str]:
    if was is None:
        yield f"new, {view.state.value}"
        return
    if was.state is not view.state:
        why = f": {view.error}" if view.error and view.state is not State.RUNNING else ""
        yield f"{was.state.value} → {view.state.value}{why}"
    if was.name != view.name:
        yield f"renamed from {was.name}"
    if was.past is not view.past:
        yield from _past_changes(was.past, view.past)


def _past_changes(was: PastView, now: PastView) -> Iterator[str]:
    before = {made.id: made for made in was.checkpoints}
    fresh = [made for made in now.checkpoints if made.id not in before]
    for made in fresh:
        kind = "automatic checkpoint" if made.auto else "checkpoint"
        yield f"{kind} {clip(made.tag, TAG_CELLS)}"
    left = {made.id for made in now.checkpoints}
    for made in was.checkpoints:
        if made.id not in left:
            yield f"checkpoint {clip(made.tag, TAG_CELLS)} is gone"
    reached = now.find(now.head)
    if now.head != was.head and reached is not None and reached.id in before:
        yield f"went back to {clip(reached.tag, TAG_CELLS)}"
