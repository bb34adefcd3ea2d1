"""Keys that leave only leave: nothing is cancelled, deleted or gone back to by them, and where one
came from to choose something is where one is again."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from quicksand_tui.jobs.run_many import RunMany
from quicksand_tui.model.jobs import RunState
from quicksand_tui.screens.run_many_table import RunManyScreen
from quicksand_tui.verbs.launching import start
from quicksand_tui.views.main_layout import Part, Tab
from tests.each import each, trying
from tests.unit.app.fakes import (
    DB,
    KEPT,
    PAUSED,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    select,
    send,
    shown,
    toasts,
    until,
)
from tests.unit.kit.test_hands import SCREENS

DESKTOP = replace(WEB_PAST, has_display=True)
OTHER = replace(WEB, id="ee55ff667788", name="other")
PREFIX = "ctrl+right_square_bracket"
LEAVING = ("escape", "escape", "escape", "escape")


@each("begin", [("a",), ("enter",), ("n", "enter")], ids=["a", "enter", "new"])
async def test_escape_on_the_main_screen_cancels_no_job_and_says_what_does(
    begin: tuple[str, ...],
) -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        service.hold = asyncio.Event()
        await pilot.press(*begin)
        await until(lambda: app.operations.jobs)
        await pilot.pause()
        await pilot.press(*LEAVING)
        await until(lambda: "It still runs: X cancels it" in toasts(app))
        assert service.undone == [] and app.operations.jobs
        service.hold.set()
        await until(lambda: not app.operations.jobs)
        assert app.operations.ended[-1].outcome == "done"


async def test_escape_cancels_nothing_on_any_screen() -> None:
    service = FakeService(replace(KEPT, sandboxes=(DESKTOP, PAUSED, DB)))
    async with shown(service) as (app, pilot):
        service.hold = asyncio.Event()
        app.operations.do(start(), DB)
        await until(lambda: app.operations.jobs)
        service.calls.clear()
        for name, keys in {**SCREENS, "a command in many": ("exclamation_mark",)}.items():
            with trying(name):
                await pilot.press("1")
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause()
                for _ in range(2):
                    await pilot.press("escape")
                    await pilot.pause()
                await until(lambda: app.screen is app.main)
                assert service.undone == [] and len(app.operations.jobs) == 1
                changing = ("delete", "stop", "kill", "revert", "purge", "undo")
                assert not [call for call in service.calls if call.startswith(changing)]
        service.hold.set()
        await until(lambda: not app.operations.jobs)


async def test_a_command_in_many_goes_on_when_its_screen_is_left_and_is_there_again() -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB, OTHER)))
    async with shown(service) as (app, pilot):
        app.dialogs.open_run_many((WEB, OTHER))
        await until(lambda: isinstance(app.screen, RunManyScreen) and app.focused)
        service.hold = asyncio.Event()
        send(app, ["l", "s", "enter"])
        await until(lambda: service.running == 2)
        await until(lambda: "c cancels · esc leaves it running" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        assert service.undone == [] and service.running == 2
        await pilot.press("exclamation_mark")
        await until(lambda: isinstance(app.screen, RunManyScreen))
        await until(lambda: "esc leaves it running" in screen_text(app))
        await pilot.press("q")
        await until(lambda: app.screen is app.main)
        service.hold.set()
        await until(lambda: "ls: 2 of 2 ended with 0" in toasts(app))
        await pilot.press("exclamation_mark")
        await until(lambda: screen_text(app).count("✓ 0  ") == 2)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("exclamation_mark")
        await until(lambda: isinstance(app.screen, RunManyScreen))
        await until(lambda: "enter runs it" in screen_text(app))


async def test_a_command_that_has_ended_is_not_shown_for_others_that_were_marked_since() -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB, OTHER, DB)))
    async with shown(service) as (app, pilot):
        app.dialogs.open_run_many((WEB, OTHER))
        await until(lambda: isinstance(app.screen, RunManyScreen) and app.focused)
        service.hold = asyncio.Event()
        send(app, ["l", "s", "enter"])
        await until(lambda: service.running == 2)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        service.hold.set()
        await until(lambda: "ls: 2 of 2 ended with 0" in toasts(app))
        app.dialogs.open_run_many((WEB, DB))
        await until(lambda: isinstance(app.screen, RunManyScreen) and app.focused)
        await until(lambda: "enter runs it" in screen_text(app))
        assert DB.name in screen_text(app)


async def test_c_cancels_a_command_in_many() -> None:
    service = FakeService(replace(KEPT, sandboxes=(WEB, OTHER)))
    async with shown(service) as (app, pilot):
        app.dialogs.open_run_many((WEB, OTHER))
        await until(lambda: isinstance(app.screen, RunManyScreen) and app.focused)
        service.hold = asyncio.Event()
        send(app, ["l", "s", "enter"])
        await until(lambda: service.running == 2)
        await pilot.press("c")
        await until(lambda: sorted(service.undone) == sorted(service.calls))
        assert isinstance(app.screen, RunManyScreen)
        many: RunMany = app.screen._many
        await until(lambda: [run.state for run in many.runs] == [RunState.CANCELLED] * 2)


@each("view", [WEB_PAST, DB], ids=["running", "stopped"])
async def test_the_key_that_opens_the_tree_does_not_go_back(view: object) -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await select(pilot, app.world.sandbox(view.id))  # type: ignore[attr-defined, arg-type]
        await pilot.press("u", "u", "u")
        await pilot.pause()
        assert app.main.places.part is Part.TREE and service.calls == [] and not app.operations.jobs
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("enter")
        await until(lambda: service.calls)
        await until(lambda: not app.operations.jobs)


TO_THE_TREE: dict[tuple[str, ...], tuple[Part, Tab | None]] = {
    ("w", PREFIX, "u"): (Part.AREA, Tab.DESKTOP),
    ("s", PREFIX, "u"): (Part.AREA, Tab.SHELLS),
    ("l", "u"): (Part.AREA, Tab.LOG),
    ("D", "u"): (Part.AREA, Tab.MOUNTS),
    ("u",): (Part.LISTS, None),
    ("4",): (Part.TREE, None),
}
"""Keys that lead to the tree, and from where they do."""


@pytest.mark.parametrize(
    ("leaves", "size"),
    [
        ("enter", (80, 24)),
        ("escape", (160, 45)),
        pytest.param("enter", (160, 45), marks=pytest.mark.soak),
        pytest.param("escape", (80, 24), marks=pytest.mark.soak),
    ],
    ids=str,
)
async def test_from_the_tree_one_comes_back_to_where_one_was(
    leaves: str, size: tuple[int, int]
) -> None:
    world = replace(KEPT, sandboxes=(DESKTOP,))
    service = FakeService(world)
    async with shown(service, size=size) as (app, pilot):
        places = app.main.places
        for keys, (part, tab) in TO_THE_TREE.items():
            with trying(keys):
                service.world = world
                await app.look()
                service.calls.clear()
                for key in keys:
                    if key == PREFIX:
                        await until(lambda: app.keys.panes.pane is not None)
                    await pilot.press(key)
                    await pilot.pause()
                await until(lambda: places.part is Part.TREE)
                await until(lambda: app.main.checkpoints.table.has_focus)
                await pilot.press("k", leaves)
                if leaves == "enter":
                    await until(lambda: any(call.startswith("revert") for call in service.calls))
                    await until(lambda: not app.operations.jobs)
                is_left = leaves == "escape" and part is Part.TREE
                back = Part.LISTS if is_left else part
                await until(lambda back=back: places.part is back)  # type: ignore[misc]
                assert tab is None or app.main.area.tab is tab
                if tab in (Tab.DESKTOP, Tab.SHELLS):
                    await until(lambda: app.keys.panes.pane is not None)
                    await pilot.press(PREFIX, "d")
                else:
                    await pilot.press("escape")
                await until(lambda: places.part is Part.LISTS)
