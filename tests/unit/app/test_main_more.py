"""The main screen: pausing, ordering, copying, the mouse, and what it costs to stand still."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.command import CommandPalette

from quicksand_tui.screens.commands import CommandsScreen
from quicksand_tui.snapshot import SandboxView, State
from quicksand_tui.themes import fitting_theme
from quicksand_tui.view import ORDERS, ordered
from tests.unit.app.fakes import (
    AGENT,
    BROKEN,
    DB,
    DEBIAN,
    FULL,
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

SIZE = (80, 24)


async def test_p_pauses_and_enter_lets_it_go_on() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, WEB)
        await pilot.press("p")
        await until(lambda: "‖ paused    web" in screen_text(app))
        await until(lambda: "quicksand-tui pause web  ✓" in screen_text(app))
        assert "P lets it go on" in screen_text(app)
        await pilot.press("enter")
        await until(lambda: "● running   web" in screen_text(app))
        await until(lambda: "quicksand-tui resume web  ✓" in screen_text(app))
        assert service.calls == [f"pause {WEB.id}", f"resume {WEB.id}"]


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
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        table = app.main.sandboxes.table
        await select(pilot, DB)
        await pilot.press("o")
        await until(lambda: "Sandboxes by name" in screen_text(app))
        assert table.selected_key == DB.id
        lines = screen_text(app).splitlines()
        assert await pilot.click(table, offset=(lines[2].index("Disk") - 1, 0))
        await until(lambda: "Sandboxes by disk" in screen_text(app))
        await until(lambda: table.cursor_row == 0)
        for _ in ORDERS:
            await pilot.press("o")
        await until(lambda: "Sandboxes by disk" in screen_text(app))


async def test_another_order_keeps_what_is_seen() -> None:
    views = tuple(replace(WEB, id=f"{n:012x}", name=f"box-{n:02}") for n in range(60))
    service = FakeService(replace(FULL, sandboxes=views))
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        table = app.main.sandboxes.table
        await select(pilot, views[30])
        await pilot.press("k", "k", "k")
        top = table.scroll_y
        assert top > 20
        swapped = (*views[1:], replace(views[0], created=(WEB.created or 0) + 1))
        service.world = replace(FULL, sandboxes=swapped)
        await until(lambda: list(table._shown)[-1] == views[0].id)
        assert table.selected_key == views[27].id
        await until(lambda: table.scroll_y == top)


async def test_one_click_selects_and_two_open() -> None:
    service = FakeService()
    app = make_app(service)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        table = app.main.sandboxes.table
        row = [line for line in screen_text(app).splitlines() if "╭" not in line]
        at = next(n for n, line in enumerate(row) if "○ stopped   db" in line) - 1
        assert await pilot.click(table, offset=(20, at))
        await until(lambda: table.selected_key == DB.id)
        assert await pilot.click(table, offset=(20, at))
        await pilot.pause()
        assert service.calls == []
        assert await pilot.double_click(table, offset=(20, at))
        await until(lambda: service.calls == [f"start {DB.id}"])


async def test_y_copies_the_name_of_what_is_selected() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await select(pilot, AGENT)
        await pilot.press("y")
        await until(lambda: app.clipboard == "agent-7")
        await pilot.press("2", "y")
        await until(lambda: app.clipboard == DEBIAN.name)
        await pilot.press("1")
        assert app.main.sandboxes.table.has_focus
        assert "Copied agent-7, if the terminal allows it" in toasts(app)


async def test_the_commands_of_what_was_done_are_kept() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("at")
        await until(lambda: "Nothing was done yet" in screen_text(app))
        await pilot.press("escape", "x")
        await until(lambda: "stop web  ✓" in screen_text(app))
        await select(pilot, DB)
        await pilot.press("S")
        await until(lambda: "start db  ✓" in screen_text(app))
        await pilot.press("at")
        await until(lambda: isinstance(app.screen, CommandsScreen))
        await until(lambda: screen_text(app).count("$ quicksand-tui") >= 2)
        await pilot.press("y")
        await until(lambda: app.clipboard == "quicksand-tui stop web\nquicksand-tui start db")
        await pilot.press("at")
        await until(lambda: app.screen is app.main)


async def test_a_colon_opens_the_palette() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        await pilot.press("colon")
        await until(lambda: isinstance(app.screen, CommandPalette))


async def test_nothing_moves_when_the_first_command_is_shown() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        before = app.main.sandboxes.region
        assert "$ quicksand-tui ps -a" in screen_text(app)
        await pilot.press("x")
        await until(lambda: "stop web  ✓" in screen_text(app))
        assert app.main.sandboxes.region == before


async def test_what_has_not_changed_is_not_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        drawn: list[str] = []
        for widget in app.main.query("*"):
            monkeypatch.setattr(
                widget, "refresh", lambda *_, name=str(widget), **__: drawn.append(name)
            )
        app.main.show(app.snapshot)
        assert drawn == []


async def test_a_snapshot_that_comes_too_late_harms_nobody() -> None:
    app = make_app(FakeService())
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        main = app.main
        await main.query("*").remove()
        assert main.visible_sandboxes
        main.show(replace(FULL, sandboxes=(BROKEN,)))


@pytest.mark.parametrize(
    ("says", "theme"),
    [
        ("", "quicksand"),
        ("15;0", "quicksand"),
        ("0;15", "quicksand-light"),
        ("0;default;7", "quicksand-light"),
    ],
)
def test_the_theme_fits_the_terminal(
    monkeypatch: pytest.MonkeyPatch, says: str, theme: str
) -> None:
    monkeypatch.setenv("COLORFGBG", says)
    assert fitting_theme() == theme


async def test_an_unknown_theme_is_no_reason_to_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEXTUAL_THEME", "no-such-theme")
    monkeypatch.setenv("COLORFGBG", "")
    assert make_app(FakeService()).theme == "quicksand"


async def test_states_are_legible_in_the_light_theme() -> None:
    app = make_app(FakeService())
    app.theme = "quicksand-light"
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot)
        paused = app.theme_variables["text-warning"]
        shown = app.main.sandboxes.table.get_row(PAUSED.id)[0]
        assert shown.spans[0].style == paused != app.theme_variables["warning"]
        assert State.PAUSED.value in shown.plain


@pytest.mark.parametrize("size", [(40, 12), (24, 6), (60, 16)])
async def test_a_tiny_terminal_shows_the_list_and_the_keys(size: tuple[int, int]) -> None:
    app = make_app(FakeService())
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        lines = screen_text(app).splitlines()
        assert "quicksand" in lines[0]
        assert any("● running" in line for line in lines)
        assert "quit" in lines[-1] and "help" in lines[-1]
        await pilot.press("tab")
        await until(lambda: "debian" in screen_text(app) and "Images" in screen_text(app))
        assert "quit" in screen_text(app).splitlines()[-1]
        await pilot.press("tab")
        await until(lambda: "● running" in screen_text(app))
