"""What `events` sees of a sandbox from look to look."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from quicksand.base.errors import ConfigError
from quicksand.base.paths import Paths
from quicksand.records.layout import runtime_dir
from quicksand.things.mount_facts import MountFacts
from quicksand.things.status import MountState, Status

from quicksand_tui.door.event_watch import Cursor, EventWatch, read_cursor, write_cursor
from quicksand_tui.door.look import Reader
from quicksand_tui.model.happened import differences
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import World
from tests.each import each
from tests.unit.app.fakes import FULL, WEB_PAST


class Looks:
    """A reader that sees one sandbox in one state after the other."""

    def __init__(self, *views: SandboxView) -> None:
        self._views: Iterator[SandboxView] = iter(views)

    def read(self, _: frozenset[str]) -> World:
        return replace(FULL, sandboxes=(next(self._views),))


def test_a_revert_is_told_though_a_look_fell_into_it(places: Paths) -> None:
    before = replace(WEB_PAST, run="r1")
    within = replace(WEB_PAST, run="", name="web")
    after = replace(WEB_PAST, run="r2", origin="clean")
    watch = EventWatch()
    watch._reader = cast(Reader, Looks(before, within, after, after))
    watch.look()
    told = [event.kind.value for _ in range(3) for event in watch.look()]
    assert told == ["reverted"]


MOUNT = MountFacts(key="/srv/\udcff", host="/home/me", guest="/srv/?", told=("Makefile",))
MOMENTS = (
    WEB_PAST,
    replace(WEB_PAST, name="other", state=Status.STOPPED, run="", started=None),
    replace(WEB_PAST, run="r1", started=5.0),
    replace(WEB_PAST, run="r2", started=5.0, origin="clean", mounts=(MOUNT,)),
    replace(WEB_PAST, mounts=(replace(MOUNT, readonly=True, state=MountState.MOUNTED),)),
    replace(WEB_PAST, tree=replace(WEB_PAST.tree, checkpoints=WEB_PAST.tree.checkpoints[1:])),
    replace(WEB_PAST, tree=replace(WEB_PAST.tree, head=WEB_PAST.tree.checkpoints[0].id)),
    replace(WEB_PAST, id="0123456789ab"),
)


def test_a_reader_that_is_started_again_tells_what_one_that_went_on_would(tmp_path: Path) -> None:
    file = tmp_path / "cursor"
    assert read_cursor(file) is None
    for before in MOMENTS:
        write_cursor(file, Cursor(world=replace(FULL, sandboxes=(before,)), commands={"a": 1.5}))
        cursor = read_cursor(file)
        assert cursor is not None
        assert cursor.commands == {"a": 1.5}
        for after in MOMENTS:
            now = replace(FULL, taken=9.0, sandboxes=(after,))
            same = list(differences(replace(FULL, sandboxes=(before,)), now))
            assert list(differences(cursor.world, now)) == same


@each(
    "text",
    ["", "precious", "{}", "[]", '{"schema_version": 2}', '{"schema_version": 1, "sandboxes": 7}',
     json.dumps({"schema_version": 1, "events_until": 1, "sandboxes": [{"id": 1}], "commands": {}}),
     json.dumps({"schema_version": 1, "events_until": 1, "sandboxes": [], "commands": {"a": "b"}})],
)  # fmt: skip
def test_a_file_that_is_no_cursor_is_refused_and_left_as_it_is(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cursor"
    file.write_text(text)
    with pytest.raises(ConfigError, match="is not what"):
        read_cursor(file)
    assert file.read_text() == text


def test_of_commands_those_are_told_that_the_reader_before_has_not_told(places: Paths) -> None:
    world = replace(FULL, sandboxes=(WEB_PAST,))
    log = runtime_dir(places, WEB_PAST.id).command_log
    log.parent.mkdir(parents=True)
    ends = [[at, f"command {at}", 0, 0.1, False] for at in (4.0, 5.0, 6.0)]
    log.write_text("".join(json.dumps(end) + "\n" for end in ends))
    watch = EventWatch(Cursor(world=world, commands={WEB_PAST.id: 5.0, "gone": 1.0}))
    assert [event.facts["command"] for event in watch._commands(world)] == ["command 6.0"]
    assert watch.cursor is not None
    assert watch.cursor.commands == {WEB_PAST.id: 6.0}
    assert list(watch._commands(world)) == []
    log.unlink()
    log.parent.rmdir()
