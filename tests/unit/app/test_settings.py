"""The config in the running app: keys, reload, what is wrong with it, read-only."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand_driver.input_splitter import InputSplitter
from quicksand_panes.widgets import Pane
from textual.pilot import Pilot
from textual.widgets import Static

from quicksand_tui.home.config_file import ConfigFile, Settings
from quicksand_tui.model.keymap import UNBOUND
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.screens.reports import ReportScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.verbs.halting import stop
from tests.unit.app.fakes import (
    DB,
    KEPT,
    WEB,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def settings_of(path: Path, text: str) -> Settings:
    path.write_text(text)
    return Settings(ConfigFile(path))


async def press_on(pilot: Pilot[int], view: SandboxView, *keys: str) -> None:
    await select(pilot, view)
    await pilot.press(*keys)
    await pilot.pause()


async def test_other_keys_do_it_and_are_shown(path: Path) -> None:
    settings = settings_of(path, '[keys]\nstop = "f9"\nsaves = ""\nmain.help = ["H", "?"]\n')
    service = FakeService()
    async with shown(service, size=(120, 36), settings=settings) as (app, pilot):
        footer = screen_text(app).splitlines()[-1]
        assert "f9 stop" in footer and "H help" in footer and "saves" not in footer
        await press_on(pilot, WEB, "x", "v")
        assert app.screen is app.main and service.calls == []
        await pilot.press("f9")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)
        await pilot.press("H")
        await until(lambda: isinstance(app.screen, HelpScreen))
        await until(lambda: "f9         Stop gently" in screen_text(app))
        await pilot.press("slash", *"saves", "enter")
        await until(lambda: ":saves     Go to the saves" in screen_text(app))


async def test_reasons_name_the_keys_as_they_are(path: Path) -> None:
    settings = settings_of(path, '[keys]\nmain.start = "f9"\npause = ""\n')
    async with shown(settings=settings) as (app, pilot):
        await press_on(pilot, DB, "s")
        await until(lambda: "db does not run: f9 starts it" in toasts(app))


async def test_a_list_opens_with_enter_and_with_the_key_of_ones_own(path: Path) -> None:
    service = FakeService()
    settings = settings_of(path, '[keys]\nopen = "f9"\n')
    async with shown(service, settings=settings) as (app, pilot):
        await press_on(pilot, DB, "f9")
        await until(lambda: f"start {DB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)


async def test_what_is_wrong_is_shown_once_and_the_rest_counts(path: Path) -> None:
    text = 'theme = "nrod"\nmous = true\n[keys]\nstop = "d"\nmain.kill = "f9"\n'
    async with shown(size=(120, 36), settings=settings_of(path, text)) as (app, pilot):
        await until(lambda: isinstance(app.screen, ReportScreen))
        await until(lambda: "3 problems" in screen_text(app))
        shows = screen_text(app)
        for words in ("line 1: theme", "line 2: mous", "did you mean mouse?", "line 4: keys.stop"):
            assert words in shows
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert app.world.keymap.hint("kill") == "f9"
        app.refresh_now(fresh=True)
        await app.look()
        assert app.screen is app.main


async def test_a_change_counts_at_once(path: Path) -> None:
    service = FakeService()
    async with shown(service, settings=settings_of(path, "")) as (app, pilot):
        path.write_text('theme = "nord"\nread_only = true\n[keys]\nmain.stop = "f9"\n')
        await until(lambda: app.theme == "nord")
        told = "The config was read again; at the next start read_only"
        await until(lambda: told in toasts(app))
        await until(lambda: "f9 stop" in screen_text(app))
        await press_on(pilot, WEB, "f9")
        await until(lambda: f"stop {WEB.id}" in service.calls)
        await until(lambda: not app.operations.jobs)
        path.write_text("mouse = 3")
        await until(lambda: isinstance(app.screen, ReportScreen))
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        assert app.world.keymap.hint("stop") == "x"


async def test_an_action_without_a_key_gets_no_binding(path: Path) -> None:
    async with shown(settings=settings_of(path, '[keys]\nstop = ""\nkill = ""\n')) as (app, _):
        assert app._keymap["main.stop"] == app._keymap["main.kill"] == UNBOUND
        assert not {"x", "K"} & set(app.screen.active_bindings)


# Read-only


async def test_a_read_only_app_changes_nothing_and_says_so() -> None:
    service = FakeService(KEPT)
    async with shown(service, settings=Settings(read_only=True)) as (app, pilot):
        assert "read-only" in screen_text(app).splitlines()[0]
        for view in (WEB, DB):
            for key in ("n", "enter", "s", "f", "S", "x", "p", "K", "C", "R", "u", "A", "d", "b"):
                await press_on(pilot, view, key)
                assert app.screen is app.main
        assert set(service.calls) == set()
        assert any(text.startswith("read-only") for text in toasts(app))
        assert "stop" not in screen_text(app).splitlines()[-1]


async def test_what_no_action_leads_to_is_refused_all_the_same() -> None:
    service = FakeService(KEPT)
    async with shown(service, settings=Settings(read_only=True)) as (app, pilot):
        app.operations.do(stop(), WEB)
        app.main.area.shells.open(WEB)
        app.full_shell.open(WEB)
        await pilot.pause()
        assert app.operations.jobs == () and app.screen is app.main and not app.full_shell.opens
        assert service.calls == []


async def test_a_read_only_app_shows_logs_trees_and_saves() -> None:
    service = FakeService(KEPT)
    async with shown(service, settings=Settings(read_only=True)) as (app, pilot):
        await press_on(pilot, WEB, "l")
        await until(lambda: "console" in screen_text(app))
        await pilot.press("escape", "v")
        await until(lambda: isinstance(app.screen, SavesScreen) and app.world.saves.loaded)
        await until(lambda: "read-only" in screen_text(app).splitlines()[0])
        await pilot.press("d", "enter", "e", "i")
        await pilot.pause()
        assert isinstance(app.screen, SavesScreen)
        await pilot.press("f")
        await until(lambda: any("verify" in call for call in service.calls))
        await until(lambda: not app.operations.jobs)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        app.everywhere.open_line("tree web")
        await pilot.pause()
        await pilot.press("enter")
        await until(lambda: app.main.checkpoints.table.has_focus)
        await pilot.press("enter", "d", "c", "U", "t", "p")
        await pilot.pause()
        assert len(app.screen_stack) == 1
        assert not [call for call in service.calls if call.split()[0] in ("revert", "undo")]


# The prefix of the panes


def test_another_prefix_parts_the_input() -> None:
    splitter = InputSplitter()
    splitter.raw = True
    splitter.prefix = b"\x01"
    pieces = splitter.feed(b"a\x1d\x01x")
    assert [(piece.data, piece.for_pane) for piece in pieces] == [
        (b"a\x1d", True),
        (b"\x01", False),
        (b"x", False),
    ]


async def test_another_prefix_leads_to_the_commands_of_panes(path: Path) -> None:
    service = FakeService()
    settings = settings_of(path, 'prefix = "ctrl-a"\n[keys]\npanes.back = "b"\nbroadcast = ""\n')
    async with shown(service, settings=settings) as (app, pilot):
        await press_on(pilot, WEB, "s")
        await until(lambda: isinstance(app.focused, Pane) and service.terminals)
        await until(lambda: f"{WEB.name} · prefix ctrl-a" in screen_text(app))
        (terminal,) = service.terminals
        await until(lambda: app.focused is not None)
        await pilot.press("ctrl+right_square_bracket", "ctrl+a", "ctrl+a")
        await until(lambda: terminal.typed == b"\x1d\x01")
        await pilot.press("ctrl+a", "d")
        await until(lambda: "ctrl-a d does nothing; ctrl-a ? shows what there is" in toasts(app))
        await pilot.press("ctrl+a", "question_mark")
        await until(lambda: "Shells: ctrl-a and then" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: isinstance(app.focused, Pane))
        await pilot.press("ctrl+a", "b")
        await until(lambda: app.main.sandboxes.table.has_focus)


def told_by(app: QuicksandApp) -> str:
    """Returns the report that is in front; "" if there is none."""
    texts = app.screen.query("#report Static").results(Static)
    return "\n".join(str(text.content) for text in texts)


async def test_a_report_on_the_config_takes_the_place_of_the_last_one_and_ends_with_the_problems(
    path: Path,
) -> None:
    async with shown(size=(120, 36), settings=settings_of(path, "")) as (app, _):
        for name in ("nrod", "drak"):
            path.write_text(f'theme = "{name}"\n')
            await until(lambda name=name: name in told_by(app))  # type: ignore[misc]
        assert sum(isinstance(screen, ReportScreen) for screen in app.screen_stack) == 1
        path.write_text('theme = "nord"\n')
        await until(lambda: app.screen is app.main)
        assert app.theme == "nord"
