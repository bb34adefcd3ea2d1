"""Watches all sandboxes of this user for events, whichever process causes them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand.base.paths import paths
from quicksand.records.command_log import CommandEnd, CommandLogReader
from quicksand.records.layout import runtime_dir

from quicksand_tui.door.event_cursor import Cursor
from quicksand_tui.door.look import Reader
from quicksand_tui.model.happened import Happened, HappenedKind, differences, past_of
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.model.world import World


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
