"""Keys that are typed right behind the key that ends an input or a form, before the app has handled
that: they are for whatever has the focus then."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot

from quicksand_tui.screens.command_line import CommandScreen
from quicksand_tui.screens.form import WAITS_S, FormScreen
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.ui import key_routing
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.widgets.inputs import LineInput
from tests.each import each, trying
from tests.unit.app.fakes import KEPT, FakeService, shown, toasts, until

NAMES = {
    " ": "space",
    ":": "colon",
    "?": "question_mark",
    ".": "full_stop",
    "\x1b": "escape",
    "\r": "enter",
}


def type_at_once(app: QuicksandApp, text: str) -> None:
    """Type as a script does: all keys are there before the first is handled."""
    for char in text:
        app.post_message(Key(NAMES.get(char, char), char))


async def open_form(app: QuicksandApp, pilot: Pilot[int], key: str) -> None:
    await pilot.press(key)
    await until(lambda: isinstance(app.screen, FormScreen) and app.focused is not None)


def line_of(app: QuicksandApp) -> str:
    """The command line's text; "" if it is not open."""
    is_open = isinstance(app.screen, CommandScreen)
    return next((one.value for one in app.screen.query(LineInput)), "") if is_open else ""


async def leave_line(app: QuicksandApp, pilot: Pilot[int]) -> None:
    await pilot.press("escape")
    await until(lambda: not isinstance(app.screen, CommandScreen))


async def test_keys_behind_escape_are_for_the_screen_below() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        for key in ("S", "c", "n", "b", "p", "M"):
            with trying(key):
                await open_form(app, pilot, key)
                type_at_once(app, "\x1b:clone . 0")
                await until(lambda: line_of(app) == "clone . 0")
                await leave_line(app, pilot)


async def test_keys_behind_enter_are_no_part_of_what_it_takes() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await open_form(app, pilot, "S")
        await pilot.press(*"name")
        type_at_once(app, "\r:clone . 0")
        await until(lambda: line_of(app) == "clone . 0")
        await until(lambda: toasts(app))
        assert toasts(app)[0].startswith("name is saved")


async def test_escape_right_behind_enter_takes_nothing_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the host is looked at before the form knows whether it stays."""
    looking, looked, see = threading.Event(), threading.Event(), FormScreen._see

    def slow(form: FormScreen, *words: Any) -> Any:
        looking.set()
        assert looked.wait(60)
        return see(form, *words)

    service = FakeService(KEPT)
    async with shown(service, size=(120, 36)) as (app, pilot):
        await open_form(app, pilot, "n")
        monkeypatch.setattr(FormScreen, "_see", slow)
        form = app.screen
        type_at_once(app, "\r\x1b")
        await until(looking.is_set)
        await pilot.pause()
        assert app.screen is form
        looked.set()
        await until(lambda: len(service.made) == 1)


async def test_escape_leaves_a_form_that_still_looks_at_what_was_entered() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await open_form(app, pilot, "S")
        form = app.screen
        assert isinstance(form, FormScreen)
        entered, later = Key("enter", "\r"), Key("escape", "\x1b")
        assert not form.drops_key(entered)
        later.time = entered.time + 2 * WAITS_S
        assert not form.drops_key(later)


async def test_a_form_that_stays_gets_the_keys_behind_its_enter() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await open_form(app, pilot, "S")
        field = app.screen.query_one("#save", LineInput)
        await pilot.press("ctrl+u", *"bad/")
        type_at_once(app, "\rabc")
        await until(lambda: field.value == "bad/abc")
        assert isinstance(app.screen, FormScreen)
        await pilot.press("x", "escape")
        await until(lambda: app.screen is app.main)


@each("opening", ["/", "v/", "l/", "T/"])
async def test_keys_behind_the_end_of_a_filter_or_a_search_are_not_typed_into_it(
    opening: str,
) -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        for key in opening[:-1]:
            await pilot.press(key)
            await pilot.pause()
        for ending in ("\x1b", "\r"):
            with trying(repr(ending)):
                await pilot.press("slash")
                await until(lambda: isinstance(app.focused, LineInput))
                await pilot.press("e")
                type_at_once(app, f"{ending}:clone . 0")
                await until(lambda: line_of(app) == "clone . 0")
                await leave_line(app, pilot)


async def test_keys_behind_the_command_for_many_are_no_part_of_it() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await pilot.press("!")
        await until(lambda: isinstance(app.focused, LineInput))
        field = app.focused
        assert isinstance(field, LineInput)
        type_at_once(app, "make\rq")
        await until(lambda: app.focused is not field)
        await pilot.pause()
        assert field.value == "make"


@each("line", ["", "theme nord", "new debian"])
@each("ending", ["\x1b", "\r"], ids=["escape", "enter"])
async def test_keys_behind_a_command_line_wait_for_no_deadline(
    ending: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_routing, "HELD_S", 600.0)
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await pilot.press("colon")
        await until(lambda: isinstance(app.focused, LineInput))
        type_at_once(app, f"{line}{ending}")
        if ending == "\r" and line.startswith("new"):
            await until(lambda: isinstance(app.screen, FormScreen))
            type_at_once(app, "\x1b")
        type_at_once(app, "?")
        await until(lambda: isinstance(app.screen, HelpScreen))


async def test_held_keys_go_on_if_their_input_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_routing, "HELD_S", 0.01)
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, _):
        field = LineInput()
        event = Key("enter", "\r")
        event._set_forwarded()
        app.key_routing.sent(event, field)
        app.post_message(Key("question_mark", "?"))
        await until(lambda: isinstance(app.screen, HelpScreen))
