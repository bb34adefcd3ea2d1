"""The sandboxes as a reader of events saw them last, in a file. The next reader tells the events
since then, as if it were the same one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quicksand.base.errors import ConfigError
from quicksand.base.fields import Fields
from quicksand.base.files import read_json, write_json
from quicksand.things.frozen import frozen
from quicksand.things.status import MountState, Status

from quicksand_tui.model.shown_sandboxes import (
    CheckpointTree,
    CheckpointView,
    MountView,
    SandboxView,
)
from quicksand_tui.model.world import World

SCHEMA = 1


@frozen
class Cursor:
    """The position of a reader."""

    world: World
    """The parts of a world that `happened.differences` compares, and no more."""
    commands: Mapping[str, float]
    """The Unix time of the end of the last command that was told, by the ids of sandboxes."""


def read_cursor(path: Path) -> Cursor | None:
    """Returns the cursor that an earlier reader has left; None if there is none. Blocks. Raises
    ConfigError for a file that is something else: that is never written over."""
    try:
        return _parse(read_json(path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path} is not what `events --since` has written",
            hint="name a file that is not there yet, or remove this one",
        ) from error


def write_cursor(path: Path, cursor: Cursor) -> None:
    """Replaces the file. Blocks. Raises HostError."""
    value = {
        "schema_version": SCHEMA,
        "events_until": cursor.world.taken,
        "sandboxes": [_of_sandbox(view) for view in cursor.world.sandboxes],
        "commands": dict(cursor.commands),
    }
    write_json(path.absolute(), value, read=_parse)


def _of_sandbox(view: SandboxView) -> dict[str, Any]:
    return {
        "id": view.id,
        "name": view.name,
        "state": view.state.value,
        "started": view.started,
        "run": view.run,
        "head": view.tree.head,
        "checkpoints": [[made.id, made.tag] for made in view.tree.checkpoints],
        "mounts": [
            {
                "key": mount.key,
                "host": mount.host,
                "guest": mount.guest,
                "readonly": mount.readonly,
                "state": mount.state.value,
                "told": list(mount.told),
            }
            for mount in view.mounts
        ],
    }


def _parse(value: dict[str, Any]) -> Cursor:
    """Returns the cursor in a file. Raises ValueError."""
    found = Fields(value, "bad cursor")
    if found.whole("schema_version") != SCHEMA:
        raise ValueError("it is of another version")
    views = tuple(_sandbox(one) for one in found.items("sandboxes"))
    times = found.any("commands")
    if not isinstance(times, dict) or not all(type(at) in (int, float) for at in times.values()):
        raise ValueError("it has no times of commands")
    return Cursor(world=World(taken=found.real("events_until"), sandboxes=views), commands=times)


def _sandbox(value: object) -> SandboxView:
    found = _fields(value)
    made = tuple(
        CheckpointView(id=id_, tag=tag, name=tag)
        for id_, tag in map(_pair, found.items("checkpoints"))
    )
    started, head = found.any("started"), found.any("head")
    return SandboxView(
        id=found.text("id"),
        name=found.text("name"),
        state=Status(found.text("state")),
        started=None if started is None else found.real("started"),
        run=found.text("run"),
        tree=CheckpointTree(checkpoints=made, head=None if head is None else found.text("head")),
        mounts=tuple(_mount(one) for one in found.items("mounts")),
    )


def _mount(value: object) -> MountView:
    found = _fields(value)
    return MountView(
        key=found.text("key"),
        host=found.text("host"),
        guest=found.text("guest"),
        readonly=found.flag("readonly"),
        state=MountState(found.text("state")),
        told=tuple(map(str, found.items("told"))),
    )


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("an object is needed")
    return Fields(value, "bad cursor")


def _pair(value: object) -> tuple[str, str]:
    if not isinstance(value, list) or [type(one) for one in value] != [str, str]:
        raise ValueError("a checkpoint is an id and a tag")
    return value[0], value[1]
