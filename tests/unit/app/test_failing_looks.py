"""Looks at the host that fail, each at each of its calls: what is shown stays, says why, and is
right again with the next look. The app ends of none."""

from __future__ import annotations

import ast
import builtins
import contextlib
import errno
import io
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import quicksand_panes
from quicksand.base.errors import ConfigError
from quicksand.base.paths import Paths
from quicksand.saves.save_manifest import Base
from quicksand.saves.store import SaveStore

import quicksand_tui
from quicksand_tui.door import lazy_door
from quicksand_tui.door import look as reader
from quicksand_tui.door import service as door
from quicksand_tui.door.log_tail import FileLog
from quicksand_tui.door.look import Reader
from quicksand_tui.door.saves_look import SavesReader
from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.forms import new_sandbox as form_of_sandbox
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.world import HostView, World
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.ui import world_watch
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.happenings import happenings, past
from tests.each import each
from tests.unit.app.fakes import (
    FULL,
    KEPT,
    WEB,
    FakeLog,
    FakeService,
    screen_text,
    select,
    shown,
    until,
)
from tests.unit.app.test_reader import make
from tests.unit.cli.histories import add, history_of, stand_at
from tests.unit.saves.making import make_save

CALLS = (
    (os, "stat"),
    (os, "lstat"),
    (os, "scandir"),
    (os, "listdir"),
    (os, "readlink"),
    (os, "open"),
    (os, "fstat"),
    (io, "open"),
    (builtins, "open"),
)
"""What a look asks the host with."""
ERRORS = (errno.EACCES, errno.EIO, errno.EMFILE)
MOST = 2000
"""More calls than any look makes."""
DENIED = "Permission denied"


class Trouble:
    """The n-th call of one thread that concerns files below some places fails."""

    def __init__(self) -> None:
        self.left = 0
        self.struck = False
        self._places: tuple[str, ...] = ()
        self._thread = threading.get_ident()
        self._errno = 0

    @contextlib.contextmanager
    def at(self, number: int, code: int, *places: Path) -> Iterator[None]:
        self.left, self._errno, self.struck = number, code, False
        self._places = tuple(map(str, places))
        try:
            yield
        finally:
            self._places = ()

    def look_at(self, where: object, has_directory: bool) -> None:
        if not self._places or threading.get_ident() != self._thread:
            return
        text = os.fsdecode(where) if isinstance(where, str | bytes | os.PathLike) else ""
        if not (has_directory or isinstance(where, int) or text.startswith(self._places)):
            return
        self.left -= 1
        if self.left == 0:
            self.struck = True
            raise OSError(self._errno, os.strerror(self._errno), text or None)


@pytest.fixture
def trouble(monkeypatch: pytest.MonkeyPatch) -> Trouble:
    found = Trouble()

    def troubled(call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(*arguments: Any, **named: Any) -> Any:
            where = arguments[0] if arguments else named.get("path", ".")
            found.look_at(where, named.get("dir_fd") is not None)
            return call(*arguments, **named)

        return replacement

    for module, name in CALLS:
        monkeypatch.setattr(module, name, troubled(getattr(module, name)))
    return found


def each_failing(trouble: Trouble, look: Callable[[], object], *places: Path) -> Iterator[int]:
    """Has each call of a look fail, with each error in turn; yields after each look."""
    for number in range(1, MOST):
        with trouble.at(number, ERRORS[number % len(ERRORS)], *places):
            look()
        if not trouble.struck:
            assert number > 1, "the look asks the host for nothing"
            return
        yield number
    raise AssertionError(f"a look with {MOST} calls")


def settled(world: World) -> World:
    """Without what differs from look to look."""
    views = tuple(replace(view, disk=None) for view in world.sandboxes)
    return replace(world, taken=0.0, host=HostView(), sandboxes=views)


def test_a_look_at_the_store_that_fails_anywhere_keeps_what_was_there(
    places: Paths, base: Base, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "USAGE_EVERY_S", 0.0)
    for number in range(2):
        record = make(places, number)
        history = history_of(places, record)
        add(history, 1)
        add(history, 2, 1)
        stand_at(history, 2)
    visible = frozenset({"0" * 12})
    looking = Reader()
    before = settled(looking.read(visible))
    assert len(before.sandboxes) == 2 and before.images and not before.error
    worlds: list[World] = []

    def look() -> None:
        worlds.append(looking.read(visible, fresh=True))

    for number in each_failing(trouble, look, places.data, places.runtime):
        world = worlds[-1]
        assert {view.id for view in world.sandboxes} == {view.id for view in before.sandboxes}
        assert {image.name for image in world.images} == {image.name for image in before.images}
        if world.error:
            assert not list(happenings(before, world))
        # Not fresh: what could not be read is looked at again by itself.
        after = settled(looking.read(visible))
        for view, was in zip(after.sandboxes, before.sandboxes, strict=True):
            assert view.tree.checkpoints == was.tree.checkpoints, number
            assert view == was, number
        assert after == before, number
    assert any(world.error for world in worlds) and any(world.images_error for world in worlds)


def test_a_first_look_that_fails_says_so_and_the_next_one_is_right(
    places: Paths, base: Base, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "USAGE_EVERY_S", 0.0)
    make(places)
    visible = frozenset({"0" * 12})
    before = settled(Reader().read(visible))
    found: list[Reader] = []

    def look() -> None:
        found.append(Reader())
        found[-1].read(visible)

    for number in each_failing(trouble, look, places.data, places.runtime):
        assert settled(found[-1].read(visible)) == before, number


def test_a_look_at_the_saves_that_fails_anywhere_keeps_what_was_there(
    places: Paths, store: SaveStore, base: Base, trouble: Trouble
) -> None:
    first = make_save(store, "first", b"1", base=base)
    make_save(store, "second", b"2", over=first, base=base)
    make_save(store, "old", b"3", base=base)
    store.remove("old")
    looking = SavesReader()
    before = looking.read()
    assert (len(before.saves), len(before.trash)) == (2, 1)
    errors = []

    def look() -> None:
        errors.append(looking.read(fresh=True).error)

    for number in each_failing(trouble, look, places.data):
        if errors[-1]:
            assert len(looking._view.saves) == 2, number
            assert looking.read() == before, number
        # The engine takes some of what it cannot read as not there, until the next full look.
        assert looking.read(fresh=True) == before, number
    assert any(errors)


def test_a_log_whose_reading_fails_anywhere_goes_on_where_it_was(
    tmp_path: Path, trouble: Trouble
) -> None:
    path = tmp_path / "console.log"
    for number in range(1, 12):
        path.with_name("console.log.1").write_text("older\n")
        path.write_text("first\n")
        log = FileLog(path)
        read, failed = "", 0
        for text in ("", "second\n", "third\n"):
            with path.open("a") as file:
                file.write(text)
            with trouble.at(number, errno.EIO, tmp_path):
                try:
                    read += log.read()
                except OSError:
                    failed += 1
            read += log.read()
        log.close()
        assert read == "older\nfirst\nsecond\nthird\n", number
        assert failed or number > 1


def test_errors_of_the_engine_reach_the_app_as_what_it_shows(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("the place is on the moon", hint="bring it back")

    for name in dir(lazy_door):  # or else what is first imported now keeps the fake
        getattr(lazy_door, name)
    for name in ("Reader", "SavesReader"):
        module = "look" if name == "Reader" else "saves_look"
        monkeypatch.setattr(f"quicksand_tui.door.{module}.{name}", refuse)
    monkeypatch.setattr("quicksand.base.paths.paths", refuse)
    service = door.EngineService()
    for look in (
        service.read,
        service.read_saves,
        lambda: service.open_log("0" * 12, LogKind.CONSOLE),
    ):
        with pytest.raises(OperationError, match="on the moon"):
            look()
    service.close()


# The app


def denied(*_: object, **__: object) -> Any:
    raise PermissionError(errno.EACCES, DENIED, "/data/images")


class Failing(FakeService):
    """A service of which one look fails while ``fails`` names it."""

    fails = ""

    def read(self, **wanted: Any) -> World:
        if self.fails == "read":
            denied()
        return super().read(**wanted)

    def read_saves(self, *, fresh: bool = False, there: bool = False) -> Any:
        if self.fails == "read_saves":
            denied()
        return super().read_saves(fresh=fresh)

    def open_log(self, sandbox_id: str, kind: LogKind) -> FakeLog:
        if self.fails == "open_log":
            denied()
        log = super().open_log(sandbox_id, kind)
        usual = log.read
        log.read = lambda: denied() if self.fails == "log.read" else usual()  # type: ignore[method-assign]
        return log


@contextlib.asynccontextmanager
async def failing(*keys: str) -> Any:
    service = Failing(KEPT)
    async with shown(service, size=(120, 36)) as (app, pilot):
        await select(pilot, WEB)
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        yield app, pilot, service


async def sees(app: QuicksandApp, text: str) -> None:
    def look() -> bool:
        app.refresh_now()
        return text in screen_text(app)

    await until(look)


async def test_a_store_that_cannot_be_read_for_a_moment_keeps_its_list_and_its_shells() -> None:
    async with failing("s") as (app, _, service):
        await until(lambda: app.main.area.shells.workspace is not None)
        before = [*app.present.events]
        service.fails = "read"
        await sees(app, DENIED)
        assert [view.id for view in app.world.sandboxes] == [v.id for v in KEPT.sandboxes]
        assert app.main.area.shells.workspace is not None and app.is_running
        service.fails = ""
        await until(lambda: not app.world.error)
        await until(lambda: DENIED not in screen_text(app))
        assert [*app.present.events] == before


async def test_a_store_that_could_not_be_read_at_first_is_read_later() -> None:
    service = Failing(FULL)
    service.fails = "read"
    async with shown(service) as (app, _):
        await sees(app, "The store cannot be read.")
        service.fails = ""
        await sees(app, "● running   web")
        assert [*app.present.events] == past(FULL), "nothing has happened meanwhile"


async def test_saves_that_cannot_be_read_say_so_and_are_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world_watch, "LOOK_EVERY_S", 0.01)
    async with failing("v") as (app, _, service):
        await until(lambda: app.world.saves.loaded)
        there = len(app.world.saves.saves)
        service.fails = "read_saves"
        await sees(app, DENIED)
        assert len(app.world.saves.saves) == there > 0
        service.fails = ""
        await until(lambda: not app.world.saves.error)
        await sees(app, " dev ")
        assert DENIED not in screen_text(app)


@each("what", ["open_log", "log.read"])
async def test_a_log_that_cannot_be_read_says_so_and_is_read_again(what: str) -> None:
    service = Failing(KEPT)
    service.fails = what
    async with shown(service, size=(140, 36)) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("l")
        await sees(app, f"it cannot be read: /data/images: {DENIED}")
        service.logs[LogKind.CONSOLE].pending = "it is here again\n"
        service.fails = ""
        await sees(app, "it is here again")
        await until(lambda: DENIED not in screen_text(app))


async def test_a_form_whose_look_at_the_host_fails_says_so_and_looks_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = FakeService(KEPT)
    async with shown(service, size=(100, 30)) as (app, pilot):
        with monkeypatch.context() as patch:
            patch.setattr(form_of_sandbox, "look_at_ports", denied)
            await pilot.press("n")
            await until(lambda: isinstance(app.screen, FormScreen))
            await until(lambda: DENIED in screen_text(app))
            await pilot.press("enter")
            await pilot.pause()
            assert isinstance(app.screen, FormScreen) and not service.made
        await pilot.press("enter")
        await until(lambda: service.made)


ASKS = "asks by `EngineService.ask`, which raises OperationError only"

LOOKERS = {
    "cockpit/checkpoint_previews.py:_look": ASKS,
    "cockpit/area.py:_answer": ASKS,
    "cockpit/desktop_tab.py:_begin_recording": "tells an OSError",
    "cockpit/desktop_tab.py:_save_picture": "tells an OSError",
    "cockpit/log.py:_save": "tells an OSError",
    "cockpit/log.py:_follow": "test_a_log_that_cannot_be_read_says_so_and_is_read_again",
    "cockpit/shells_tab.py:_add_left": ASKS,
    "cockpit/shells_tab.py:_go_on": "waits for what is begun, and looks at nothing of the host",
    "cockpit/shells_tab.py:_open": "likewise; `PaneMemory.read` never raises",
    "cockpit/stats_tab.py:_ask": ASKS,
    "cockpit/checkpoint_previews.py:_ask": ASKS,
    "cockpit/wall.py:_look": ASKS,
    "kit/remembered.py:remember": "`Remembered.write` gives up on an OSError",
    "kit/remembered.py:remember_command": "`CommandHistory.add` never raises",
    "kit/remembered.py:remember_panes": "`PaneMemory.write` gives up on an OSError",
    "quicksand_panes/gestures.py:changed": "searches what is in memory",
    "quicksand_panes/pictures.py:_decode": "looks at nothing; any error refuses the picture",
    "quicksand_panes/workspace.py:_run_clock": "looks at nothing of the host",
    "screens/command_line.py:_load_history": "`CommandHistory.read` never raises",
    "screens/diff_browser.py:_filter": "arranges what is in memory",
    "screens/diff_browser.py:_read": ASKS,
    "screens/diff_browser.py:_read_text": "likewise",
    "screens/diff_browser.py:_save_patch": "likewise",
    "screens/form.py:_look": "test_a_form_whose_look_at_the_host_fails_says_so_and_looks_again",
    "screens/form.py:action_submit": "likewise",
    "screens/terminal_loan.py:open": "an OSError is the failure that is shown",
    "ui/themes.py:theme_changed": "tells an OSError",
    "ui/app.py:_count_saves": "imports; an error ends the app, which then is not whole",
    "ui/app.py:_watch": "test_a_store_that_could_not_be_read_at_first_is_read_later",
    "ui/app.py:run_operation": "`EngineService.carry_out` raises OperationError only",
    "ui/app.py:watch_saves": "test_saves_that_cannot_be_read_say_so_and_are_read_again",
}
"""What runs beside the keys, and what becomes of an error of the host there."""


def test_every_worker_of_the_app_is_named_here() -> None:
    app, panes = (Path(str(one.__file__)).parent for one in (quicksand_tui, quicksand_panes))
    found = set()
    for root, path in [(app, one) for one in app.rglob("*.py")] + [
        (panes.parent, one) for one in panes.rglob("*.py")
    ]:
        text = path.read_text()
        if "work(" not in text and "@work" not in text and "run_worker" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                decorated = any(_name(each) == "work" for each in node.decorator_list)
                calls = (each for each in ast.walk(node) if isinstance(each, ast.Call))
                starts = any(_name(call) == "run_worker" for call in calls)
                if decorated or starts:
                    found.add(f"{path.relative_to(root)}:{node.name}")
    assert found == LOOKERS.keys()
    tests = {name for name in globals() if name.startswith("test_")}
    assert {why for why in LOOKERS.values() if why.startswith("test_")} <= tests


def _name(node: ast.expr) -> str:
    target = node.func if isinstance(node, ast.Call) else node
    return target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
