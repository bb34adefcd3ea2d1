"""The main screen: what it shows, finding things in it by keys and by the mouse, and what it costs
to stand still."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from quicksand.things.status import Status
from quicksand_panes.widgets import Pane
from textual import events
from textual.command import CommandPalette
from textual.widgets import Input

from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import World
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.views.sandbox_rows import ORDERS, ordered
from quicksand_tui.widgets.browser import kept_order
from tests.each import each
from tests.unit.app.fakes import (
    AGENT,
    BROKEN,
    DB,
    DEBIAN,
    EMPTY,
    FULL,
    NOW,
    PAUSED,
    SIZE,
    WEB,
    FakeService,
    make_app,
    screen_text,
    select,
    shown,
    toasts,
    until,
)


async def test_the_store_is_shown_as_it_is_on_disk() -> None:
    async with shown() as (app, _):
        text = screen_text(app)
        found = [line[3:].split()[:3] for line in text.splitlines()[3:8]]
        for glyph, name in (("●", "web"), ("‖", "builder"), ("○", "db"), ("✗", "agent-7")):
            assert any(line[0] == glyph and name in line for line in found)
        assert "183M" in text
        assert "6.0G RAM" in text


async def test_a_change_of_the_store_shows_by_itself_and_keeps_the_cursor() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await select(pilot, AGENT)
        service.world = replace(
            service.world,
            sandboxes=(replace(WEB, state=Status.CRASHED, error="kernel panic"), AGENT),
        )
        await until(lambda: app.main.sandboxes.table.row_count == 2)
        assert app.main.sandboxes.table.selected_key == AGENT.id
        await until(lambda: "1 running" not in screen_text(app))


async def test_only_visible_rows_are_asked_for_their_use() -> None:
    views = tuple(replace(WEB, id=f"{n:012x}", name=f"box-{n}") for n in range(60))
    service = FakeService(replace(FULL, sandboxes=views))
    async with shown(service) as (app, pilot):
        await until(lambda: service.visible)
        assert len(service.visible) < 20
        await pilot.press("G")
        app.refresh_now()
        await until(lambda: views[-1].id in service.visible)


async def test_guests_are_asked_for_their_network_where_it_is_seen_only() -> None:
    service = FakeService()
    async with shown(service, size=(140, 30)) as (app, pilot):
        await until(lambda: service.visible)
        assert not service.network, "beside the tree and the main area there is no room for it"
        await pilot.press("z")
        await until(lambda: app.main.lists.size.width == 140)
        app.refresh_now()
        await until(lambda: service.network == {WEB.id})
        await pilot.press("question_mark")
        await until(lambda: app.screen is not app.main)
        app.refresh_now()
        await until(lambda: not service.network)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        app.refresh_now()
        await until(lambda: service.network)
        await pilot.press("2")
        await until(lambda: app.main.shows_saves)
        app.refresh_now()
        await until(lambda: not service.network)
        await pilot.press("1")
        app.refresh_now()
        await until(lambda: service.network)
        service.hold = asyncio.Event()
        await pilot.press("x")
        await until(lambda: app.operations.jobs)
        app.refresh_now()
        await until(lambda: not service.network)


@each("size", [(120, 36), (50, 10)])
async def test_a_first_screen_has_its_styles_without_being_asked_twice(
    size: tuple[int, int],
) -> None:
    """`MainScreen.update_node_styles` leaves out what Textual asks for a second time."""
    async with shown(size=size) as (app, _):
        nodes = list(app.main.walk_children(with_self=True))
        before = [node.styles.css for node in nodes]
        app.stylesheet.update(app.main)
        assert [node.styles.css for node in nodes] == before


async def test_the_filter_works_as_one_types_and_escape_clears_it() -> None:
    async with shown() as (app, pilot):
        table = app.main.sandboxes.table
        await pilot.press("slash")
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press(*"state:st")
        await until(lambda: table.row_count == 1)
        await pilot.press("enter")
        await until(lambda: table.has_focus)
        await pilot.pause()
        await until(lambda: "1 Sandboxes 1 of 5 /state:st" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: table.row_count == 5)


async def test_the_footer_of_a_filter_names_only_its_own_keys() -> None:
    def footer() -> list[str]:
        return screen_text(app_shown).splitlines()[-1].split()

    async with shown() as (app_shown, pilot):
        await until(lambda: "stop" in footer())
        await pilot.press("slash")
        await until(lambda: footer() == ["enter", "done", "esc", "clears"])
        await pilot.press("w", "enter")
        await until(lambda: "stop" in footer() and "clears" not in footer())
        await pilot.press("v")
        await until(lambda: app_shown.screen is not app_shown.main and "back" in footer())
        await pilot.press("slash")
        await until(lambda: footer() == ["enter", "done", "esc", "clears"])
        await pilot.press("escape")
        await until(lambda: "back" in footer())


async def test_the_footer_of_copy_mode_names_its_keys() -> None:
    async with shown() as (app, pilot):
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))
        await pilot.press("ctrl+right_square_bracket", "left_square_bracket")
        await until(lambda: "v select  y copy" in screen_text(app))
        await pilot.press("q")
        await until(lambda: "v select  y copy" not in screen_text(app))


async def test_the_footer_says_how_a_paused_one_goes_on() -> None:
    async with shown() as (app, pilot):
        assert "P resume" not in screen_text(app)
        await select(pilot, PAUSED)
        await until(lambda: "P resume" in screen_text(app))
        await select(pilot, WEB)
        await until(lambda: "P resume" not in screen_text(app))


async def test_a_filter_without_a_match_says_how_to_clear_it() -> None:
    async with shown() as (app, pilot):
        await pilot.press("slash", *"zzz")
        await until(lambda: "Nothing matches" in screen_text(app))
        await pilot.press("x", "escape")
        await until(lambda: app.main.sandboxes.table.row_count == 5)
        assert app.focused is app.main.sandboxes.table


async def test_keys_move_as_in_vi() -> None:
    async with shown() as (app, pilot):
        table = app.main.sandboxes.table
        await pilot.press("j", "j", "k")
        assert table.selected_key == PAUSED.id
        await pilot.press("G")
        assert table.selected_key == DB.id
        await pilot.press("g")
        assert table.selected_key == WEB.id


async def test_3_goes_to_the_images_whose_details_are_shown() -> None:
    async with shown() as (app, pilot):
        await pilot.press("3", "down")
        await until(lambda: "manifest.json is damaged" in screen_text(app))
        await pilot.press("x")
        await until(lambda: "an image is selected: 1 goes to the sandboxes" in toasts(app))
        await pilot.press("1")
        assert app.focused is app.main.sandboxes.table


async def test_a_paste_is_refused() -> None:
    service = FakeService()
    async with shown(service) as (app, _):
        app.post_message(events.Paste("xdyq"))
        await until(lambda: any("Pasting is refused" in note for note in toasts(app)))
        assert service.calls == []


async def test_a_click_on_the_footer_is_the_key_and_escape_leaves_the_help() -> None:
    async with shown() as (app, pilot):
        bar = app.main.query_one("#actions")
        place = screen_text(app).splitlines()[bar.region.y].index("help")
        assert await pilot.click("#actions", offset=(place - bar.region.x, 0))
        await until(lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)


async def test_the_palette_has_the_keys_the_commands_and_why_what_is_not_possible() -> None:
    async with shown() as (app, pilot):
        found = {command.title: command for command in app.get_system_commands(app.main)}
        assert "Stop (x)" in found and "Theme" in found
        assert found["Start (a)"].help == "Not now: web is already running"
        assert list(found).index("Stop (x)") < list(found).index("Start (a)")
        found["Start (a)"].callback()
        await until(lambda: toasts(app) == ["web is already running"])
        await pilot.press("ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette))
        titles = [found.title for found in app.get_system_commands(app.main)]
        assert "Stop (x)" in titles and ":revert [SANDBOX] [CHECKPOINT]" in titles


async def test_r_reads_everything_anew() -> None:
    service = FakeService()
    async with shown(service) as (_, pilot):
        await pilot.press("r")
        await until(lambda: "read fresh" in service.calls)


async def test_five_hundred_sandboxes_are_filtered_without_a_stutter() -> None:
    views = tuple(
        replace(WEB, id=f"{n:012x}", name=f"box-{n}", created=NOW - n) for n in range(500)
    )
    async with shown(FakeService(replace(FULL, sandboxes=views)), size=(120, 36)) as (app, pilot):
        await until(lambda: app.main.sandboxes.table.row_count == 500)
        await pilot.press("slash", *"box-49")
        await until(lambda: app.main.sandboxes.table.row_count == 11)


async def test_nothing_yet_says_which_key_comes_next() -> None:
    for world in (EMPTY, World(taken=NOW)):
        app = make_app(FakeService(world))
        async with app.run_test(size=SIZE):
            await until(lambda app=app: app.world.loaded)  # type: ignore[misc]
            words = (
                "n starts your first sandbox, from debian" if world is EMPTY else "I installs one"
            )
            await until(lambda app=app, words=words: words in screen_text(app))  # type: ignore[misc]


def names(order: str, *views: SandboxView) -> list[str]:
    return [view.name for view in ordered(views, order)]


def test_orders() -> None:
    views = FULL.sandboxes
    assert names("state", *views) == ["web", "builder", "cc33dd44ee55", "agent-7", "db"]
    assert names("name", *views) == ["agent-7", "builder", "cc33dd44ee55", "db", "web"]
    assert names("age", *views)[0] == "agent-7"
    assert names("disk", *views)[0] == "db"
    busy = replace(PAUSED, cpu_percent=90.0)
    assert names("cpu", WEB, DB, busy) == ["builder", "web", "db"]
    assert names("memory", DB, WEB) == ["web", "db"]


async def test_o_and_the_headers_order_and_the_title_says_how() -> None:
    async with shown() as (app, pilot):
        table = app.main.sandboxes.table
        await select(pilot, DB)
        await pilot.press("o")
        await until(lambda: "Sandboxes 5 by name" in screen_text(app))
        assert table.selected_key == DB.id
        lines = screen_text(app).splitlines()
        assert await pilot.click(table, offset=(lines[2].index("Disk") - 1, 0))
        await until(lambda: "Sandboxes 5 by disk" in screen_text(app))
        await until(lambda: table.cursor_row == 0)
        for _ in ORDERS:
            await pilot.press("o")
        await until(lambda: "Sandboxes 5 by disk" in screen_text(app))


async def test_no_row_moves_below_the_cursor_until_it_leaves_the_list() -> None:
    views = tuple(replace(WEB, id=f"{n:012x}", name=f"box-{n:02}") for n in range(60))
    service = FakeService(replace(FULL, sandboxes=views))
    async with shown(service) as (app, pilot):
        table = app.main.sandboxes.table
        await select(pilot, views[30])
        await pilot.press("k", "k", "k")
        top = table.scroll_y
        assert top > 20
        swapped = (*views[1:], replace(views[0], created=(WEB.created or 0) + 1))
        service.world = replace(FULL, sandboxes=swapped)
        before = list(table._keys)
        await until(lambda: app.world.sandbox(views[0].id) in swapped[-1:])
        await pilot.pause()
        assert list(table._keys) == before
        assert (table.selected_key, table.scroll_y) == (views[27].id, top)
        await pilot.press("4")
        await until(lambda: table._keys[-1] == views[0].id)
        assert table.selected_key == views[27].id


def test_what_is_new_comes_where_it_belongs_and_the_rest_stays() -> None:
    assert kept_order(["b", "a", "x"], ["a", "n", "b", "m"]) == ["b", "m", "a", "n"]
    assert kept_order([], ["a", "b"]) == ["a", "b"]
    assert kept_order(["a"], ["n", "a"]) == ["n", "a"]


async def test_one_click_selects_and_two_open() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        table = app.main.sandboxes.table
        lines = screen_text(app).splitlines()
        at = next(n for n, line in enumerate(lines) if "○ stopped   db" in line) - table.region.y
        assert await pilot.click(table, offset=(20, at))
        await until(lambda: table.selected_key == DB.id)
        assert await pilot.click(table, offset=(20, at))
        await pilot.pause()
        assert service.calls == []
        assert await pilot.double_click(table, offset=(20, at))
        await until(lambda: service.calls == [f"start {DB.id}"])


async def test_y_copies_the_name_of_what_is_selected() -> None:
    async with shown() as (app, pilot):
        await select(pilot, AGENT)
        await pilot.press("y")
        await until(lambda: app.clipboard == "agent-7")
        await pilot.press("3", "y")
        await until(lambda: app.clipboard == DEBIAN.name)
        await pilot.press("1")
        assert app.main.sandboxes.table.has_focus
        assert "Copied agent-7, if the terminal allows it" in toasts(app)


async def test_what_has_not_changed_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with shown() as (app, _):
        drawn: list[str] = []
        for widget in app.main.query("*"):
            monkeypatch.setattr(
                widget, "refresh", lambda *_, name=str(widget), **__: drawn.append(name)
            )
        app.main.show(app.world)
        assert drawn == []


async def test_a_snapshot_that_comes_too_late_harms_nobody() -> None:
    async with shown() as (app, _):
        main = app.main
        await main.query("*").remove()
        assert main.visible_sandboxes
        main.show(replace(FULL, sandboxes=(BROKEN,)))
