"""A stop that is asked about first, and one that is not."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.status import Status
from quicksand_panes.widgets import Pane

from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.views.losses import losses_of_stop
from tests.unit.app.fakes import DB, FULL, WEB, FakeService, screen_text, select, shown, until

PREFIX = "ctrl+right_square_bracket"
OTHER = replace(DB, state=Status.RUNNING)
BOTH = replace(FULL, sandboxes=(WEB, OTHER))


def test_what_is_named() -> None:
    assert losses_of_stop([WEB], with_shells=(), hidden=()) == ()
    assert losses_of_stop([WEB], with_shells=(), hidden={WEB.id}) == ("web: hidden by the filter",)
    both = losses_of_stop([WEB, OTHER], with_shells={OTHER.id}, hidden=())
    assert both == ("db: its open shells end", "web")


def test_of_many_the_hidden_ones_are_named_first_and_all_counted() -> None:
    many = [replace(WEB, id=f"{n:012x}", name=f"box-{n}") for n in range(10)]
    hidden = {view.id for view in many[2:]}
    lines = losses_of_stop(many, with_shells={many[9].id}, hidden=hidden)
    assert lines[0] == "box-9: hidden by the filter, its open shells end"
    assert lines[1] == "box-2: hidden by the filter"
    assert lines[6:] == ("and 4 more: 2 hidden",)


async def test_open_shells_are_asked_about_and_only_y_stops() -> None:
    service = FakeService(BOTH)
    async with shown(service) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane) and app.focused.is_open)
        await pilot.press(PREFIX, "d")
        await until(lambda: app.main.sandboxes.table.has_focus)
        service.calls.clear()
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: "Stop web?" in screen_text(app))
        await until(lambda: "The shells that are open in it end." in screen_text(app))
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert service.calls == []
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: service.calls == [f"stop {WEB.id}"])
        await select(pilot, OTHER)
        await pilot.press("x")
        await until(lambda: f"stop {OTHER.id}" in service.calls)


async def test_a_marked_one_that_the_filter_hides_is_named() -> None:
    service = FakeService(BOTH)
    async with shown(service) as (app, pilot):
        await select(pilot, OTHER)
        await pilot.press("space", "slash", *"web", "enter", "x")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: "db: hidden by the filter" in screen_text(app))
        assert service.calls == []
