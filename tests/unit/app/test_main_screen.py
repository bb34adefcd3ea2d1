"""The main screen, driven by keys."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from textual import events
from textual.widgets import Button, Input

from quicksand_tui.app import farewell
from quicksand_tui.application import QuicksandApp
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.failure import FailureScreen
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.snapshot import Failure, SandboxView, Snapshot, State
from tests.unit.app.fakes import (
    AGENT,
    BROKEN,
    DB,
    EMPTY,
    FULL,
    NOW,
    PAUSED,
    WEB,
    FakeService,
    make_app,
    ready,
    screen_text,
    select,
    toasts,
    until,
)
from tests.unit.app.test_text import HOSTILE

SIZE = (80, 24)


def command_line(app: QuicksandApp) -> str:
    from quicksand_tui.widgets.command_line import CommandLine

    return str(app.main.query_one(CommandLine).content)


async def test_the_store_is_shown_as_it_is_on_disk() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        text = screen_text(app)
        for words in ("● running", "○ stopped", "✗ crashed", "‖ paused", "✗ broken"):
            assert words in text
        assert "183M/512M" in text
        assert "6.0G RAM" in text


async def test_a_change_of_the_store_shows_by_itself_and_keeps_the_cursor() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, AGENT)
        service.world = replace(
            service.world,
            sandboxes=(replace(WEB, state=State.CRASHED, error="kernel panic"), AGENT),
        )
        await until(lambda: app.main.sandboxes.table.row_count == 2)
        assert app.main.sandboxes.table.selected_key == AGENT.id
        await until(lambda: "1 running" not in screen_text(app))


async def test_only_visible_rows_are_asked_for_their_use() -> None:
    views = tuple(replace(WEB, id=f"{n:012x}", name=f"box-{n}") for n in range(60))
    service = FakeService(replace(FULL, sandboxes=views))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await until(lambda: service.visible)
        assert len(service.visible) < 20
        await pilot.press("G")
        app.refresh_now()
        await until(lambda: views[-1].id in service.visible)


async def test_stop_shows_its_progress_and_its_command() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("x")
        await until(lambda: "◐ stopping" in screen_text(app))
        assert service.calls[-1] == f"stop {WEB.id}"
        assert "$ quicksand-tui stop web" in command_line(app)
        service.hold.set()
        await until(lambda: app.snapshot.sandbox(WEB.id).state is State.STOPPED)  # type: ignore[union-attr]
        await until(lambda: "✓" in command_line(app))
        assert toasts(app) == []


async def test_enter_starts_a_stopped_sandbox_and_c_cancels_it() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, DB)
        await pilot.press("enter")
        await until(lambda: "4/5 start QEMU" in screen_text(app))
        await pilot.press("c")
        await until(lambda: service.undone == [f"start {DB.id}"])
        await until(lambda: not app.operations.jobs)
        assert "cancelled" in command_line(app)
        assert app.snapshot.sandbox(DB.id) == DB


async def test_escape_cancels_the_start_under_the_cursor() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, DB)
        await pilot.press("S")
        await until(lambda: app.operations.jobs)
        await pilot.pause()
        await pilot.press("escape")
        await until(lambda: service.undone)


@pytest.mark.parametrize("key", ["enter", "d", "escape", "n", "q", "space", "tab"])
async def test_no_other_key_than_y_deletes(key: str) -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, DB)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: app.screen.query_one("#cancel", Button).has_focus)
        await pilot.press(key, "enter")
        await pilot.pause()
        assert not [call for call in service.calls if call.startswith("delete")]


async def test_delete_names_what_is_lost_and_y_does_it() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        text = screen_text(app)
        assert "It is running and will be killed." in text
        assert "Its disk is lost: 42M, made 3h ago." in text
        await pilot.press("y")
        await until(lambda: service.calls[-1] == f"delete {WEB.id}")
        await until(lambda: app.snapshot.sandbox(WEB.id) is None)


async def test_the_delete_button_works_by_the_mouse_only() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        assert await pilot.click("#yes")
        await until(lambda: f"delete {WEB.id}" in service.calls)


async def test_kill_asks_and_may_overtake_a_stop() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("x")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await pilot.press("K")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(lambda: f"kill {WEB.id}" in service.calls)
        service.hold.set()
        await until(lambda: not app.operations.jobs)


@pytest.mark.parametrize(
    ("view", "key", "says"),
    [
        (DB, "x", "db does not run"),
        (DB, "s", "db does not run: S starts it"),
        (WEB, "S", "web is already running"),
        (PAUSED, "s", "builder is paused: P lets it go on"),
        (PAUSED, "p", "builder is already paused: P lets it go on"),
        (PAUSED, "S", "builder is paused: P lets it go on"),
        (WEB, "P", "web is not paused"),
        (BROKEN, "enter", "cc33dd44ee55 is broken"),
        (WEB, "c", "nothing is under way for web"),
    ],
)
async def test_a_key_that_is_not_possible_says_why(view: SandboxView, key: str, says: str) -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, view)
        await pilot.press(key)
        await until(lambda: says in toasts(app))
        assert service.calls == []


async def test_a_failure_shows_message_hint_and_log_as_plain_text() -> None:
    service = FakeService()
    service.failure = Failure(
        title="web did not stop",
        message="[bold]QEMU[/bold] hangs",
        hint="kill it",
        log=("[red]last line[/red]",),
    )
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("x")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await pilot.pause()
        text = screen_text(app)
        for part in ("[bold]QEMU[/bold] hangs", "kill it", "[red]last line[/red]"):
            assert part in text
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert "failed" in command_line(app)


async def test_the_filter_works_as_one_types_and_escape_clears_it() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        table = app.main.sandboxes.table
        await pilot.press("slash")
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press(*"state:st")
        await until(lambda: table.row_count == 1)
        await pilot.press("enter")
        await until(lambda: table.has_focus)
        await pilot.pause()
        assert "Sandboxes /state:st" in screen_text(app)
        assert "1 of 5" in screen_text(app)
        await pilot.press("escape")
        await until(lambda: table.row_count == 5)


async def test_a_filter_without_a_match_says_how_to_clear_it() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("slash", *"zzz")
        await until(lambda: "Nothing matches" in screen_text(app))
        await pilot.press("x", "escape")
        await until(lambda: app.main.sandboxes.table.row_count == 5)
        assert app.focused is app.main.sandboxes.table


async def test_keys_move_as_in_vi() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        table = app.main.sandboxes.table
        await pilot.press("j", "j", "k")
        assert table.selected_key == PAUSED.id
        await pilot.press("G")
        assert table.selected_key == DB.id
        await pilot.press("g")
        assert table.selected_key == WEB.id


async def test_tab_goes_to_the_images_whose_details_are_shown() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("tab", "down")
        await until(lambda: "manifest.json is damaged" in screen_text(app))
        await pilot.press("x")
        await until(lambda: "an image is selected: tab goes to the sandboxes" in toasts(app))
        await pilot.press("tab")
        assert app.focused is app.main.sandboxes.table


async def test_a_paste_is_refused() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.post_message(events.Paste("xdyq"))
        await until(lambda: any("Pasting is refused" in note for note in toasts(app)))
        assert service.calls == []


async def test_a_click_on_the_footer_is_the_key() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        bar = app.main.query_one("#actions")
        place = screen_text(app).splitlines()[bar.region.y].index("help")
        assert await pilot.click("#actions", offset=(place - bar.region.x, 0))
        await until(lambda: isinstance(app.screen, HelpScreen))


async def test_help_opens_and_escape_leaves_it() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("question_mark")
        await until(lambda: isinstance(app.screen, HelpScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)


async def test_the_palette_has_the_actions_that_are_possible() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        names = [command.title for command in app.get_system_commands(app.main)]
        assert "Stop (x)" in names and "Theme" in names
        assert "Start (S)" not in names


async def test_r_reads_everything_anew() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("r")
        await until(lambda: "read fresh" in service.calls)


async def test_q_leaves_and_names_what_goes_on() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("q")
        await until(lambda: app.return_value == 0)
    assert app.running_names == ("web", "builder")


def test_the_farewell() -> None:
    assert farewell(()) == ""
    assert farewell(("web",)) == "web goes on running; quicksand-tui comes back to it.\n"
    assert "a, b, c, d, e and 2 more go on" in farewell(("a", "b", "c", "d", "e", "f", "g"))


async def test_leaving_with_work_under_way_asks_first() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, DB)
        await pilot.press("S")
        await until(lambda: app.operations.jobs)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(lambda: app.return_value == 0)


@pytest.mark.parametrize("size", [(80, 24), (60, 18), (40, 12), (200, 50), (20, 6), (120, 36)])
async def test_every_size_can_be_drawn_and_resized(size: tuple[int, int]) -> None:
    app = make_app(FakeService())
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.resize_terminal(*size)
        await until(lambda: app.size == size)
        await pilot.press("tab", "tab")
        await pilot.pause()
        assert len(screen_text(app).splitlines()) == size[1]


async def test_hostile_names_and_errors_stay_within_their_cells() -> None:
    """The service sanitises; even if it did not, markup would be text and controls not sent."""
    from quicksand_tui.text import sanitise

    views = tuple(
        replace(AGENT, id=f"{n:012x}", name=sanitise(text, limit=63), error=sanitise(text))
        for n, text in enumerate(HOSTILE)
    )
    app = make_app(FakeService(replace(FULL, sandboxes=views)))
    async with app.run_test(size=(120, 60)) as pilot:
        await ready(pilot)
        for _ in views:
            await pilot.press("j")
        text = screen_text(app)
        assert "[bold red]markup[/]" in text
        assert not set(text) & {"\x1b", "\u202e", "\u200b", "\r"}


async def test_without_a_utf8_locale_everything_is_ascii() -> None:
    app = make_app(FakeService(), ascii_glyphs=True)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for key in ("n", "escape", "question_mark", "escape", "d", "escape", "l", "escape"):
            await pilot.press(key)
            await pilot.pause()
            lines = [line for line in screen_text(app).splitlines() if not line.isascii()]
            assert not lines


async def test_every_state_can_be_told_without_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        app.theme = "ansi-dark"
        await until(lambda: app.theme == "quicksand")
        text = screen_text(app)
        assert all(word in text for word in ("● running", "○ stopped", "✗ crashed", "‖ paused"))


async def test_every_theme_can_be_chosen() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        for theme in app.available_themes:
            app.theme = theme
            await pilot.pause()
            assert "● running" in screen_text(app)


async def test_five_hundred_sandboxes_are_filtered_without_a_stutter() -> None:
    views = tuple(
        replace(WEB, id=f"{n:012x}", name=f"box-{n}", created=NOW - n) for n in range(500)
    )
    app = make_app(FakeService(replace(FULL, sandboxes=views)))
    async with app.run_test(size=(120, 36)) as pilot:
        await ready(pilot)
        await until(lambda: app.main.sandboxes.table.row_count == 500)
        await pilot.press("slash", *"box-49")
        await until(lambda: app.main.sandboxes.table.row_count == 11)


async def test_nothing_yet_says_which_key_comes_next() -> None:
    for world in (EMPTY, Snapshot(taken=NOW)):
        app = make_app(FakeService(world))
        async with app.run_test(size=SIZE):
            await until(lambda app=app: app.snapshot.loaded)  # type: ignore[misc]
            await until(lambda app=app: "No sandboxes yet" in screen_text(app))  # type: ignore[misc]
