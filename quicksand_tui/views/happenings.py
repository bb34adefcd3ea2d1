"""Events of sandboxes: the differences between two worlds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quicksand_tui.model.sandboxes import State
from quicksand_tui.model.text import clip

if TYPE_CHECKING:
    from quicksand_tui.model.checkpoints import CheckpointTree
    from quicksand_tui.model.sandboxes import SandboxView
    from quicksand_tui.model.world import World


TAG_CELLS = 60


@dataclass(frozen=True, slots=True)
class Happening:
    """One event of a sandbox."""

    when: float
    """Unix time when the app noticed it."""
    sandbox_id: str
    text: str


def happenings(before: World, after: World) -> Iterator[Happening]:
    """Yields the differences between two worlds, whoever caused them: this app, another one, or a
    script."""
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
    if was.tree is not view.tree:
        yield from _tree_changes(was.tree, view.tree)
    if was.mounts is not view.mounts:
        yield from _written(was, view)


def _written(was: SandboxView, view: SandboxView) -> Iterator[str]:
    """Yields what the guest has written that programs of this host run."""
    before = {(mount.host, path) for mount in was.mounts for path in mount.told}
    for mount in view.mounts:
        for path in mount.told:
            if (mount.host, path) not in before:
                yield f"it wrote {path} in {mount.host}, which programs here run"


def _tree_changes(was: CheckpointTree, now: CheckpointTree) -> Iterator[str]:
    before = {checkpoint.id: checkpoint for checkpoint in was.checkpoints}
    fresh = [checkpoint for checkpoint in now.checkpoints if checkpoint.id not in before]
    for checkpoint in fresh:
        kind = "automatic checkpoint" if checkpoint.auto else "checkpoint"
        yield f"{kind} {clip(checkpoint.tag, TAG_CELLS)}"
    left = {checkpoint.id for checkpoint in now.checkpoints}
    for checkpoint in was.checkpoints:
        if checkpoint.id not in left:
            yield f"checkpoint {clip(checkpoint.tag, TAG_CELLS)} is gone"
    reached = now.find(now.head)
    if now.head != was.head and reached is not None and reached.id in before:
        yield f"went back to {clip(reached.tag, TAG_CELLS)}"
