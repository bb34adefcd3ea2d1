"""Changes of sandboxes, as records for scripts: differences of two worlds, and ends of commands."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from quicksand.things.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from quicksand.things.mount_facts import MountFacts

    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
    from quicksand_tui.model.world import World

Fact = str | int | float | bool | None


class HappenedKind(StrEnum):
    """The kinds of events; the values are those of ``events --json``."""

    WATCHING = "watching"
    """The first look is done: all later events are told."""
    CREATED = "created"
    STATE = "state"
    RENAMED = "renamed"
    DELETED = "deleted"
    CHECKPOINT = "checkpoint"
    CHECKPOINT_DELETED = "checkpoint_deleted"
    REVERTED = "reverted"
    MOUNTED = "mounted"
    MOUNT_STATE = "mount_state"
    UNMOUNTED = "unmounted"
    WROTE = "wrote"
    """The guest wrote a file of this host that programs of the host run."""
    COMMAND = "command"


@frozen
class Happened:
    """One event."""

    kind: HappenedKind
    time: float
    """Unix time when it happened, or when it was noticed."""
    id: str = ""
    """The sandbox's id."""
    name: str = ""
    """The sandbox's name, sanitised."""
    facts: dict[str, Fact] = field(default_factory=dict)

    def to_json(self) -> dict[str, Fact]:
        """Returns the fields of ``events --json``."""
        about: dict[str, Fact] = {"id": self.id, "name": self.name} if self.id else {}
        return {"time": round(self.time, 3), "event": self.kind.value, **about, **self.facts}


def differences(before: World, after: World) -> Iterator[Happened]:
    """Yields the events between two looks, whoever caused them."""
    known = {view.id: view for view in before.sandboxes}
    for view in after.sandboxes:
        was = known.pop(view.id, None)
        if was is view:
            continue
        for kind, facts in _changes(was, view):
            yield Happened(kind=kind, time=after.taken, id=view.id, name=view.name, facts=facts)
    for gone in known.values():
        yield Happened(kind=HappenedKind.DELETED, time=after.taken, id=gone.id, name=gone.name)


Change = tuple[HappenedKind, dict[str, Fact]]


def _changes(was: SandboxView | None, view: SandboxView) -> Iterator[Change]:
    if was is None:
        facts: dict[str, Fact] = {"state": view.state.value, "image": view.image}
        yield HappenedKind.CREATED, facts
        return
    if was.name != view.name:
        yield HappenedKind.RENAMED, {"from": was.name}
    if was.state is not view.state:
        states: dict[str, Fact] = {"from": was.state.value, "to": view.state.value}
        yield HappenedKind.STATE, {**states, **({"error": view.error} if view.error else {})}
    yield from _tree_changes(was, view)
    yield from _mount_changes(was, view)


def _tree_changes(was: SandboxView, view: SandboxView) -> Iterator[Change]:
    before = {made.id: made for made in was.tree.checkpoints}
    left = {made.id for made in view.tree.checkpoints}
    for made in view.tree.checkpoints:
        if made.id not in before:
            yield HappenedKind.CHECKPOINT, _facts_of(made)
    for made in was.tree.checkpoints:
        if made.id not in left:
            yield HappenedKind.CHECKPOINT_DELETED, {"checkpoint": made.id, "tag": made.tag}
    if (to := _reverted_to(was, view)) is not None:
        yield HappenedKind.REVERTED, {"to": to}


def _reverted_to(was: SandboxView, view: SandboxView) -> str | None:
    """Returns the tag of the checkpoint that a sandbox went back to; None if it did not."""
    if "" not in (was.run, view.run) and was.run != view.run and was.started == view.started:
        return view.origin
    moved = view.tree.head != was.tree.head and view.tree.head in {
        m.id for m in was.tree.checkpoints
    }
    reached = view.tree.find(view.tree.head) if moved else None
    return reached.tag if reached is not None else None


def _facts_of(made: CheckpointView) -> dict[str, Fact]:
    return {
        "checkpoint": made.id,
        "tag": made.tag,
        "parent": made.parent,
        "auto": made.auto,
        "pause_s": made.pause_s,
    }


def _mount_changes(was: SandboxView, view: SandboxView) -> Iterator[Change]:
    before = {mount.key: mount for mount in was.mounts}
    for mount in view.mounts:
        old = before.pop(mount.key, None)
        if old is None or (old.host, old.readonly) != (mount.host, mount.readonly):
            yield HappenedKind.MOUNTED, _mount_facts(mount)
        elif old.state is not mount.state:
            yield HappenedKind.MOUNT_STATE, _mount_facts(mount)
    for gone in before.values():
        yield HappenedKind.UNMOUNTED, {"host": gone.host, "guest": gone.guest}
    told = {(mount.host, path) for mount in was.mounts for path in mount.told}
    for mount in view.mounts:
        for path in mount.told:
            if (mount.host, path) not in told:
                yield HappenedKind.WROTE, {"host": mount.host, "path": path}


def _mount_facts(mount: MountFacts) -> dict[str, Fact]:
    return {
        "host": mount.host,
        "guest": mount.guest,
        "readonly": mount.readonly,
        "state": mount.state.value,
    }


def past_of(world: World) -> Iterator[Happened]:
    """Yields past events that the disk tells, in no order."""
    for view in world.sandboxes:
        moments: list[tuple[float | None, HappenedKind, dict[str, Fact]]] = [
            (view.created, HappenedKind.CREATED, {"image": view.image}),
            (view.started, HappenedKind.STATE, {"to": "running"}),
            *(
                (made.created, HappenedKind.CHECKPOINT, _facts_of(made))
                for made in view.tree.checkpoints
            ),
        ]
        for when, kind, facts in moments:
            if when:
                yield Happened(kind=kind, time=when, id=view.id, name=view.name, facts=facts)


WORDS: Final = {
    HappenedKind.CREATED: "created, from {image}",
    HappenedKind.STATE: "{came}{to}{why}",
    HappenedKind.RENAMED: "renamed from {from}",
    HappenedKind.CHECKPOINT: "{kind} {tag}",
    HappenedKind.CHECKPOINT_DELETED: "checkpoint {tag} deleted",
    HappenedKind.REVERTED: "reverted to {to}",
    HappenedKind.MOUNTED: "{host} at {guest}: {state}",
    HappenedKind.MOUNT_STATE: "{host} at {guest}: {state}",
    HappenedKind.UNMOUNTED: "{guest} unmounted",
    HappenedKind.WROTE: "it wrote {path} in {host}, which programs of the host run",
    HappenedKind.COMMAND: "exit {exit_code} after {seconds} s: {command}",
}


def words_of(event: Happened) -> str:
    """Returns an event as a line for people, without its time and its sandbox."""
    facts = event.facts
    more = {
        "came": f"{facts['from']} → " if facts.get("from") else "",
        "why": f": {facts['error']}" if facts.get("error") else "",
        "kind": "automatic checkpoint" if facts.get("auto") else "checkpoint",
    }
    return WORDS.get(event.kind, event.kind.value).format_map({**facts, **more})
