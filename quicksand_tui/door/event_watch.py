"""Watches all sandboxes of this user for events, whichever process causes them, and keeps how far a
reader has come."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import ConfigError
from quicksand.base.fields import Fields
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import paths
from quicksand.base.typed_values import Decoder, encode
from quicksand.records.command_log import CommandEnd, CommandLogReader
from quicksand.records.layout import runtime_dir
from quicksand.things.frozen import frozen
from quicksand.things.mount_facts import MountFacts
from quicksand.things.status import Status

from quicksand_tui.door.look import Reader
from quicksand_tui.model.happened import Happened, HappenedKind, differences, past_of
from quicksand_tui.model.shown_sandboxes import CheckpointTree, CheckpointView, SandboxView
from quicksand_tui.model.text import clean
from quicksand_tui.model.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SCHEMA = 1
OF_MOUNT = ("key", "host", "guest", "readonly", "state", "told")
"""The facts of a mount that `happened.differences` compares."""


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
        "mounts": [{name: encode(getattr(one, name)) for name in OF_MOUNT} for one in view.mounts],
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
        mounts=Decoder({}).decode(found.items("mounts"), tuple[MountFacts, ...]),
    )


def _fields(value: object) -> Fields:
    if not isinstance(value, dict):
        raise ValueError("an object is needed")
    return Fields(value, "bad cursor")


def _pair(value: object) -> tuple[str, str]:
    if not isinstance(value, list) or [type(one) for one in value] != [str, str]:
        raise ValueError("a checkpoint is an id and a tag")
    return value[0], value[1]


class EventWatch:
    """Looks at the disk regularly: each change leaves its trace there. Used by one thread."""

    def __init__(self, cursor: Cursor | None = None) -> None:
        """``cursor`` is the position of an earlier reader."""
        self._reader = Reader()
        self._world: World | None = None if cursor is None else cursor.world
        self._ended = {} if cursor is None else dict(cursor.commands)
        """The time of the end of the last command that was told, by the ids of sandboxes."""
        self._logs: dict[str, CommandLogReader] = {}

    def look(self) -> list[Happened]:
        """Returns the events since the last look, the earliest first; the first time, the past
        events that the disk tells. Blocks for milliseconds. Raises OSError and QuicksandError if
        the disk cannot be read now."""
        visible = {view.id for view in self._world.sandboxes} if self._world is not None else ()
        before, after = self._world, self._reader.read(frozenset(visible))
        # A sandbox that could not be read now is not gone.
        after = before if before is not None and after.error and not after.sandboxes else after
        after = self._with_known_runs(after)
        found = list(past_of(after) if before is None else differences(before, after))
        found += self._commands(after)
        self._world = after
        return sorted(found, key=lambda event: event.time)

    @property
    def cursor(self) -> Cursor | None:
        """The position of this reader; None before the first look."""
        return None if self._world is None else Cursor(world=self._world, commands=self._ended)

    def _with_known_runs(self, world: World) -> World:
        """Returns a world in which a running sandbox has the run that was known last, if its own
        could not be read just then: another run would count as a revert."""
        known = self._world.sandboxes if self._world is not None else ()
        runs = {view.id: view.run for view in known if view.run and view.is_live}
        return replace(
            world,
            sandboxes=tuple(
                replace(view, run=runs[view.id])
                if not view.run and view.is_live and view.id in runs
                else view
                for view in world.sandboxes
            ),
        )

    def _commands(self, world: World) -> Iterator[Happened]:
        names = {view.id: view.name for view in world.sandboxes if view.is_live}
        self._logs = {id_: log for id_, log in self._logs.items() if id_ in names}
        self._ended = {id_: at for id_, at in self._ended.items() if id_ in names}
        for id_, name in names.items():
            told = float("-inf")
            if id_ not in self._logs:  # it is read from its beginning
                told = self._ended.get(id_, told)
                self._logs[id_] = CommandLogReader(runtime_dir(paths(), id_).command_log)
            for end in self._logs[id_].read_new():
                if end.time > told:
                    self._ended[id_] = max(end.time, self._ended.get(id_, end.time))
                    yield _ended(id_, name, end)


def _ended(id_: str, name: str, end: CommandEnd) -> Happened:
    return Happened(
        kind=HappenedKind.COMMAND,
        time=end.time,
        id=id_,
        name=name,
        facts={
            "command": clean(end.command),
            "exit_code": end.exit_code,
            "seconds": round(end.seconds, 3),
            "timed_out": end.timed_out,
        },
    )
