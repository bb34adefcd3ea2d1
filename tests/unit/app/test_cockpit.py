"""The main screen's parts, driven by keys and the mouse."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from quicksand.things.status import Status
from quicksand_panes.guest_terminal import LinkState
from quicksand_panes.widgets import Pane
from textual import events
from textual.events import Key, Resize
from textual.pilot import Pilot

from quicksand_tui.home.state import Remembered, StateFile
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.main_layout import Part, Tab
from tests.each import each, trying
from tests.unit.app.fake_saves import APP
from tests.unit.app.fakes import (
    AGENT,
    DB,
    FULL,
    KEPT,
    PAUSED,
    SIZE,
    WEB,
    FakeService,
    make_app,
    ready,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

LARGE, WIDE = (120, 36), (200, 50)
PREFIX = "ctrl+right_square_bracket"


async def test_tab_goes_round_all_parts() -> None:
    async with shown(FakeService(KEPT), size=SIZE) as (app, pilot):
        for size in (SIZE, LARGE, WIDE):
            with trying(size):
                await pilot.resize_terminal(*size)
                await pilot.press("1")
                seen = []
                for _ in range(4):
                    seen.append(app.main.places.part)
                    await pilot.press("tab")
                assert seen == [Part.LISTS, Part.TREE, Part.AREA, Part.LISTS]


async def test_brackets_go_through_the_tabs_and_clicks_choose_one() -> None:
    async with shown(FakeService(KEPT), size=LARGE) as (app, pilot):
        seen = []
        for _ in range(5):
            await pilot.press("right_square_bracket")
            seen.append(app.main.area.tab)
        assert seen == [Tab.SHELLS, Tab.LOG, Tab.MOUNTS, Tab.STATS, Tab.DETAILS]
        assert app.main.sandboxes.table.has_focus
        line = screen_text(app).splitlines()[1]
        assert await pilot.click(offset=(line.index("Stats"), 1))
        await until(lambda: app.main.area.tab is Tab.STATS and app.main.places.part is Part.AREA)
        await until(lambda: "python3 -m http" in screen_text(app))
        assert await pilot.click(offset=(line.index("Images"), 1))
        await until(lambda: app.main.lists.images.table.has_focus)


async def test_the_tree_is_a_tab_where_there_is_no_room() -> None:
    async with shown(FakeService(KEPT), size=(80, 16)) as (app, pilot):
        assert "tried-something" not in screen_text(app)
        await pilot.press("4")
        await until(lambda: "tried-something" in screen_text(app))
        assert app.main.checkpoints.table.has_focus
        await pilot.press("right_square_bracket")
        await until(lambda: "tried-something" not in screen_text(app))
        assert app.main.places.part is Part.AREA


async def test_zoom_gives_a_part_all_and_escape_takes_it_back() -> None:
    async with shown(FakeService(KEPT), size=LARGE) as (app, pilot):
        await pilot.press("z")
        await until(lambda: app.main.lists.size.width == 120)
        assert "Tree of" not in screen_text(app)
        await pilot.press("escape")
        await until(lambda: "Tree of web" in screen_text(app))


async def test_the_layout_is_remembered(tmp_path: Path) -> None:
    path = tmp_path / "app.json"
    for width in (54, 62):
        app = make_app(FakeService(KEPT))
        app.memory.remembered = Remembered(StateFile(path))
        async with app.run_test(size=LARGE) as pilot:
            await ready(pilot)
            assert app.main.lists.size.width == width
            await pilot.press("greater_than_sign", "greater_than_sign")
            await until(lambda app=app, w=width + 8: app.main.lists.size.width == w)  # type: ignore[misc]
            await until(lambda w=width + 8: kept_width(path) == w)  # type: ignore[misc]


async def test_the_mouse_drags_the_line_beside_the_lists() -> None:
    async with shown(FakeService(KEPT), size=LARGE) as (app, pilot):
        width = app.main.lists.size.width
        for to, becomes in ((70, 71), (5, 30), (119, 80)):
            line = app.main.lists.size.width - 1
            await pilot.mouse_down(offset=(line, 12))
            await pilot.hover(offset=(to, 12))
            await pilot.mouse_up(offset=(to, 12))
            await until(lambda w=becomes: app.main.lists.size.width == w)  # type: ignore[misc]
        assert width not in (30, 71, 80)
        await pilot.mouse_down(offset=(20, 12))  # not on the line
        await pilot.hover(offset=(60, 12))
        await pilot.mouse_up(offset=(60, 12))
        assert app.main.lists.size.width == 80


def kept_width(path: Path) -> object:
    """Of the lists, in the file."""
    return StateFile(path).read().get("layout", {}).get("lists")


async def test_what_is_done_to_marked_ones_is_done_to_all_of_them() -> None:
    service = FakeService(replace(FULL, sandboxes=(WEB, DB, AGENT, PAUSED)))
    async with shown(service) as (app, pilot):
        await pilot.press("space", "space", "G", "space")
        assert {view.name for view in app.main.selection.marked_sandboxes} == {
            "web",
            "builder",
            "db",
        }
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: "Stop 2 sandboxes?" in screen_text(app))
        await pilot.press("ctrl+y")
        await until(lambda: not app.operations.jobs and len(service.calls) == 2)
        assert sorted(service.calls) == sorted([f"stop {WEB.id}", f"stop {PAUSED.id}"])
        assert "stop: not possible with 1 of those marked" in toasts(app)
        assert not app.main.selection.marked_sandboxes


async def test_deleting_marked_ones_names_them_all() -> None:
    service = FakeService(KEPT)
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("asterisk", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        for words in (
            "Delete 3 sandboxes?",
            "web: 42M of disk, 5 checkpoints",
            "1 of them run",
            "U restores them, T shows the trash.",
        ):
            assert words in text
        await pilot.press("ctrl+y")
        await until(lambda: sum(call.startswith("delete") for call in service.calls) == 3)


async def test_keys_typed_before_a_shell_is_there_are_the_shells() -> None:
    service = FakeService()
    service.hold_shells = asyncio.Event()
    async with shown(service) as (app, pilot):
        await pilot.press("s", "x", "d", "q", "enter")
        await pilot.pause()
        assert service.calls == []
        service.hold_shells.set()
        await until(lambda: isinstance(app.focused, Pane))
        await until(lambda: service.terminals and service.terminals[0].typed == b"xdq\r")


def type_at_once(app: QuicksandApp, *keys: str) -> None:
    """As a slow line brings them: all are there before the first has an effect."""
    for key in keys:
        app.post_message(Key(key, key if len(key) == 1 else None))


def no_commands(service: FakeService) -> bool:
    return all(call.startswith("terminal ") for call in service.calls)


async def test_keys_that_come_together_with_the_one_that_opens_a_shell_are_the_shells() -> None:
    service = FakeService()
    async with shown(service) as (app, _):
        type_at_once(app, "s", "x", "d", "enter")
        await until(lambda: service.terminals and service.terminals[0].typed == b"xd\r")
        assert no_commands(service)
        type_at_once(app, "ctrl+right_square_bracket", "d")
        await until(lambda: app.main.sandboxes.table.has_focus)
        type_at_once(app, "s", "x", "d", "enter")
        await until(lambda: service.terminals[0].typed == b"xd\r" * 2)
        assert no_commands(service)
        service.terminals[0].tell(LinkState.LOST, "enter opens a new one: the guest is gone")
        await until(lambda: "enter opens a new one" in screen_text(app))
        type_at_once(app, "ctrl+right_square_bracket", "d")
        await until(lambda: app.main.sandboxes.table.has_focus)
        type_at_once(app, "s", "enter")
        await until(lambda: len(service.terminals) == 2)
        assert no_commands(service)


async def test_where_no_shell_is_opened_keys_are_commands() -> None:
    service = FakeService()
    async with shown(service, size=LARGE) as (app, pilot):
        app.main.places.choose_tab(Tab.SHELLS)
        await until(lambda: "s opens a shell here" in screen_text(app))
        await pilot.click("#shells-tab", offset=(10, 10))
        await pilot.press("x")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await pilot.press("tab")
        assert app.main.sandboxes.table.has_focus


async def test_keys_for_a_shell_go_to_no_other_sandbox() -> None:
    other = replace(DB, state=Status.RUNNING)
    service = FakeService(replace(FULL, sandboxes=(WEB, other)))
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, other)
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))
        await pilot.press("ctrl+right_square_bracket", "d")
        await select(pilot, WEB)
        service.hold_shells = asyncio.Event()
        await pilot.press("s", "r", "m")
        service.world = replace(service.world, sandboxes=(other,))
        await until(lambda: app.main.sandboxes.table.has_focus)
        service.hold_shells.set()
        await pilot.pause()
        assert [guest.typed for guest in service.terminals if guest.typed] == []
        assert service.calls == [f"terminal {other.id}"]


async def test_a_command_about_another_one_leaves_the_marks() -> None:
    service = FakeService(replace(FULL, sandboxes=(WEB, PAUSED, DB)))
    async with shown(service) as (app, pilot):
        await pilot.press("space")
        (marked,) = app.main.selection.marked_sandboxes
        other = PAUSED if marked.id == WEB.id else WEB
        app.main.act("stop", Selection(sandbox=other))
        await until(lambda: service.calls == [f"stop {other.id}"])
        assert [view.id for view in app.main.selection.marked_sandboxes] == [marked.id]


async def test_the_checkpoint_is_one_of_the_sandbox() -> None:
    async with shown(FakeService(KEPT), size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        checkpoints = app.main.checkpoints
        assert checkpoints.selected_of(app.main.selection.sandbox) is not None
        assert checkpoints.selected_of(DB) is None and checkpoints.selected_of(None) is None


async def test_each_sandbox_has_its_own_shells() -> None:
    service = FakeService(replace(FULL, sandboxes=(WEB, replace(DB, state=Status.RUNNING))))
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))
        service.terminals[0].say(b"this is web")
        await until(lambda: "this is web" in screen_text(app))
        await pilot.press("ctrl+right_square_bracket", "d")
        await select(pilot, DB)
        await until(lambda: "s opens a shell here" in screen_text(app))
        await pilot.press("s")
        await until(lambda: len(service.terminals) == 2 and isinstance(app.focused, Pane))
        assert "this is web" not in screen_text(app)
        await pilot.press("ctrl+right_square_bracket", "d")
        await select(pilot, WEB)
        await until(lambda: "this is web" in screen_text(app))
        service.world = replace(service.world, sandboxes=(DB,))
        await until(lambda: service.terminals[0].left)


async def test_a_late_word_of_where_the_focus_was_leads_nowhere() -> None:
    """It made a revert forget where it had been begun."""
    async with shown(FakeService(KEPT), size=SIZE) as (app, pilot):
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))
        pane = app.focused
        app.main.action_do("revert", "panes")
        assert app.main.places.came_from is not None
        assert pane is not None
        app.main.on_descendant_focus(events.DescendantFocus(pane))
        assert app.main.places.came_from is not None


async def test_events_and_commands_are_logs_too() -> None:
    service = FakeService()
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("x")
        await until(lambda: "stop web  ✓" in screen_text(app))
        await pilot.press("l", "t", "t")
        await until(lambda: "running → stopped" in screen_text(app))
        await pilot.press("t")
        await until(lambda: screen_text(app).count("$ quicksand-tui stop web") == 1)
        await pilot.press("t")
        await until(lambda: " console " in screen_text(app))


async def test_saves_are_listed_and_begun_with() -> None:
    service = FakeService()
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("2")
        await until(lambda: app.main.lists.saves.table.row_count > 0)
        await pilot.press("x")
        await until(lambda: "a save is selected: v shows" in " ".join(toasts(app)))
        await pilot.press("slash", *"dev")
        await until(lambda: app.main.lists.saves.query_text == "dev")
        await pilot.press("escape")
        await until(lambda: app.main.lists.saves.query_text == "")
        await pilot.press("1")
        assert app.main.sandboxes.table.has_focus


async def test_a_save_is_deleted_from_the_list_and_found_in_the_browser() -> None:
    service = FakeService(replace(FULL, sandboxes=(WEB, PAUSED)))
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("asterisk", "2")
        await until(lambda: app.main.lists.saves.table.row_count > 0)
        app.main.lists.saves.table.select(APP.key)
        await pilot.pause()
        await pilot.press("x")
        await until(lambda: "a save is selected: v shows" in " ".join(toasts(app)))
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        assert f"Delete the save {APP.name}?" in screen_text(app)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("v")
        await until(lambda: isinstance(app.screen, SavesScreen))
        assert isinstance(app.screen, SavesScreen)
        assert app.screen.selection.save == APP
        assert service.calls == []


async def test_a_shell_has_all_the_room_after_a_form_was_open() -> None:
    service = FakeService()
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("n")
        await until(lambda: app.screen is not app.main)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))
        assert [guest.size for guest in service.terminals] == [(80, 31)]


async def typing_into_web(app: QuicksandApp, pilot: Pilot[int], service: FakeService) -> Pane:
    """The focus in a shell of "web" that has said something."""
    await select(pilot, WEB)
    await pilot.press("s")
    await until(lambda: isinstance(app.focused, Pane))
    service.terminals[-1].say(b"this is web")
    await until(lambda: "this is web" in screen_text(app))
    assert isinstance(app.focused, Pane)
    return app.focused


@each(("size", "leave"), [(SIZE, "x"), (LARGE, "d")])
async def test_shells_of_a_deleted_sandbox_stay_until_they_are_left(
    size: tuple[int, int], leave: str
) -> None:
    other = replace(DB, state=Status.RUNNING)
    service = FakeService(replace(FULL, sandboxes=(WEB, other)))
    async with shown(service, size=size) as (app, pilot):
        pane = await typing_into_web(app, pilot, service)
        service.calls.clear()
        service.world = replace(service.world, sandboxes=(other,))
        await until(lambda: "the sandbox was deleted" in screen_text(app))
        await until(lambda: "(deleted)" in screen_text(app))
        assert app.focused is pane and app.main.selection.sandbox is None
        pane.post_message(Resize(pane.size, pane.size))
        await pilot.press(*"exit", "enter", "d", "y", "x")
        await pilot.press(PREFIX, "c", PREFIX, "percent_sign")
        await pilot.pause()
        assert app.focused is pane and app.screen is app.main
        await pilot.press(PREFIX, leave)
        await until(lambda: app.main.sandboxes.table.has_focus)
        await until(lambda: not app.main.query(Pane))
        assert service.calls == []
        assert app.main.selection.sandbox == other


async def test_shells_stay_that_the_filter_hides_while_one_types() -> None:
    service = FakeService(replace(FULL, sandboxes=(WEB, PAUSED)))
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("slash", *"!state:stopped", "enter")
        pane = await typing_into_web(app, pilot, service)
        stopped = replace(WEB, state=Status.STOPPED)
        service.world = replace(service.world, sandboxes=(stopped, PAUSED))
        await until(lambda: not app.main.sandboxes.table.has_row(WEB.id))
        await pilot.pause()
        assert app.focused is pane and "this is web" in screen_text(app)
        assert app.main.selection.sandbox == stopped
        await pilot.press(PREFIX, "d")
        await until(lambda: app.main.selection.sandbox == PAUSED)
