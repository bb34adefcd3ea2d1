"""What is done to saves on their screen: start, save, delete, export, import, verify."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from textual.widgets import Button, Input

from quicksand_tui.model.jobs import Failure
from quicksand_tui.model.specs import ExportSpec, ImportSpec
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.screens.reports import FailureScreen, ReportScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from tests.each import trying
from tests.unit.app.fake_saves import APP, DAMAGED, DEV, LOST, LOW, SAVES, saved, view_of
from tests.unit.app.fakes import DB, WEB, FakeService, screen_text, select, shown, toasts, until
from tests.unit.app.saves_screens import browsing, go_to, last_command, rows, saves_shown

# Starting


async def test_enter_starts_a_sandbox_that_begins_with_it_and_shows_it() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("enter")
        await until(lambda: "$ quicksand-tui run dev --name dev-1 --detach" in screen_text(app))
        await pilot.press(*"dev", "enter")
        await until(lambda: isinstance(app.screen, MainScreen))
        await until(lambda: "create dev" in service.calls)
        await until(lambda: last_command(app)[0] == "quicksand-tui run dev --name dev --detach")
        await until(lambda: "● running   dev" in screen_text(app))


async def test_a_name_that_is_taken_is_said_before_anything_is_done() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, FormScreen))
        field = app.screen.query_one("#name", Input)
        field.value = WEB.name
        await until(lambda: "web is taken" in screen_text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FormScreen) and service.calls == []
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SavesScreen))


async def test_a_key_that_is_not_possible_says_why() -> None:
    service = FakeService()
    service.kept = view_of(*SAVES.saves, LOW)
    async with saves_shown(service) as (app, pilot):
        for view, key, says in (
            (DAMAGED, "enter", "damaged cannot be used: the save at /saves/damaged cannot be used"),
            (LOST, "enter", "lost cannot be used: its base 'ubuntu', version 24.04"),
            (DAMAGED, "e", "damaged is damaged: it would arrive so"),
            (LOW, "d", "low is needed: top is based on it"),
            (DEV, "c", "nothing is under way"),
        ):
            with trying((view.name, key)):
                app.clear_notifications()
                await go_to(pilot, view.key)
                await pilot.press(key)
                await until(lambda: len(toasts(app)) == 1)
                assert toasts(app)[0].startswith(says)
                assert service.calls == []


async def test_what_takes_one_says_so_of_several() -> None:
    async with saves_shown(None, "space", "space", "enter", "e") as (app, _):
        await until(lambda: len(toasts(app)) == 2)
        assert toasts(app) == [
            "2 are marked: a start takes one at a time",
            "2 are marked: an export takes one at a time",
        ]


# Saving


async def test_a_sandbox_is_saved_with_name_and_note_and_shows_how_far_it_is() -> None:
    service = FakeService()
    service.kept = view_of(saved("web"))
    async with shown(service) as (app, pilot):
        await pilot.press("S")
        await until(lambda: isinstance(app.screen, FormScreen))
        # Of saves nothing was known until then.
        await until(lambda: "$ quicksand-tui save web web-2" in screen_text(app))
        await pilot.press(*"web", "end")
        await until(lambda: "there is a save web already" in screen_text(app))
        await pilot.press("2", "down", *"with gcc", "down", "right")
        command = "quicksand-tui save --compress web -m 'with gcc' web2"
        await until(lambda: f"$ {command}" in screen_text(app))
        service.hold = asyncio.Event()
        await pilot.press("enter")
        await until(lambda: "copying 25%" in screen_text(app))
        assert isinstance(app.screen, MainScreen)
        await pilot.press("S", "x")
        await until(lambda: toasts(app)[-2:] == ["web is being saved: X cancels that"] * 2)
        service.hold.set()
        await until(lambda: "web2 is saved: 67M" in toasts(app))
        assert service.calls[-1] == f"save {WEB.id} web2 'with gcc' compressed"
        assert last_command(app) == (command, "done")


async def test_a_save_can_be_cancelled() -> None:
    service = FakeService()
    service.hold = asyncio.Event()
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await pilot.press("S")
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.press("enter")
        await until(lambda: app.operations.jobs)
        await until(lambda: isinstance(app.screen, MainScreen))
        await pilot.press("X")
        await until(lambda: service.undone and not app.operations.jobs)
        assert last_command(app) == ("quicksand-tui save db db", "cancelled")


async def test_names_that_cannot_be_are_said() -> None:
    async with shown() as (app, pilot):
        await pilot.press("S")
        await until(lambda: isinstance(app.screen, FormScreen))
        field = app.screen.query_one("#save", Input)
        for name, says in (
            ("a/b", "no slash"),
            ("debian", "debian is an image: the save would hide it"),
            ("dev2", "there is a save dev2 already"),
        ):
            field.value = name
            await until(lambda says=says: says in screen_text(app))  # type: ignore[misc]
            assert app.screen.query_one("#take", Button).disabled
        field.value = ""
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FormScreen) and field.has_focus


async def test_enter_on_cancel_saves_nothing() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("S")
        await until(lambda: isinstance(app.screen, FormScreen))
        app.screen.query_one("#cancel", Button).focus()
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, MainScreen))
        assert service.calls == []


# Deleting


async def test_deleting_asks_names_the_losses_and_the_chord_is_the_trash() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        for words in (
            "Delete the save dev?",
            "dev, 64M, made 8d ago: gcc, make",
            "Deleting for good frees 12K",
            "What came from it works without it: the save",
            "To the trash ^Y",
            "For good ^G",
            "ctrl+y: to the trash, ctrl+g: for good, esc: cancel",
        ):
            assert words in text
        assert app.screen.query_one("#cancel", Button).has_focus
        await pilot.press("ctrl+y")
        await until(lambda: "dev is in the trash for a week: T shows it" in toasts(app))
        assert service.calls == [f"delete {DEV.key}"]
        assert last_command(app) == ("quicksand-tui saves rm dev", "done")
        await until(lambda: rows(app) == 4)
        await until(lambda: "3 in the trash" in screen_text(app))


async def test_no_other_key_deletes() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        for key in ("enter", "d", "escape", "n", "q", "space", "tab", "y", "D", "ctrl+d"):
            with trying(key):
                await pilot.press("d")
                await until(lambda: isinstance(app.screen, ConfirmScreen))
                await until(lambda: app.screen.query_one("#cancel", Button).has_focus)
                await pilot.press(key)
                await pilot.pause()
                if isinstance(app.screen, ConfirmScreen):
                    await pilot.press("enter")
                await until(lambda: isinstance(app.screen, SavesScreen))
                assert service.calls == []


async def test_for_good_is_a_choice_within_the_question_only() -> None:
    service = FakeService()
    async with saves_shown(service, "D", "space", "space", "d") as (app, pilot):
        await until(lambda: "Delete 2 saves?" in screen_text(app))
        await pilot.press("ctrl+g")
        await until(lambda: "2 saves are deleted for good" in toasts(app))
        assert service.calls == [f"delete {APP.key} {DAMAGED.key} now"]
        assert last_command(app)[0] == "quicksand-tui saves rm --now my-app damaged"
        await until(lambda: rows(app) == 3)
        await until(lambda: "2 in the trash" in screen_text(app))
        assert not browsing(app).browser.marked


async def test_a_question_with_one_answer_ignores_the_key_of_the_other() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+g")
        await pilot.pause()
        assert isinstance(app.screen, ConfirmScreen) and service.calls == []


async def test_the_buttons_work_by_the_mouse() -> None:
    service = FakeService()
    async with saves_shown(service, "d") as (app, pilot):
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.pause()
        assert await pilot.click("#harder")
        await until(lambda: service.calls == [f"delete {APP.key} now"])


async def test_a_failure_is_shown_with_its_hint_and_logged() -> None:
    service = FakeService()
    service.failure = Failure(title="It was not removed", message="[b]no[/b]", hint="wait")
    async with saves_shown(service, "d") as (app, pilot):
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await until(lambda: "[b]no[/b]" in screen_text(app) and "wait" in screen_text(app))
        await until(lambda: last_command(app)[1] == "failed")


# Files, verifying


async def test_an_export_goes_on_when_the_screen_is_left_and_can_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = FakeService()
    service.hold = asyncio.Event()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("e")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: "64M; needs debian 13.1 there" in screen_text(app))
        await pilot.press("down", "right", "down", "right")
        await until(lambda: "export --full --compress dev dev.quicksand" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "◐ exporting: writing 46%" in screen_text(app))
        assert isinstance(app.screen, SavesScreen)
        spec = ExportSpec(file="dev.quicksand", full=True, compress=True)
        assert service.calls == [f"export {spec}"]
        await pilot.press("f", "d")
        await until(lambda: toasts(app) == ["dev: exporting is under way"] * 2)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, FormScreen))  # a start may go on beside it
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, MainScreen))
        await until(lambda: "◐ exporting" in screen_text(app))
        await pilot.press("q")
        await until(lambda: "dev: its export is under way" in screen_text(app))
        await pilot.press("escape", "v")
        await until(lambda: isinstance(app.screen, SavesScreen))
        await until(lambda: "c cancel" in screen_text(app))
        await pilot.press("c")
        await until(lambda: service.undone and not app.operations.jobs)
        assert last_command(app)[1] == "cancelled"


async def test_a_file_that_is_there_is_not_replaced_unless_that_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.quicksand").touch()
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("e")
        await until(lambda: "this file exists already" in screen_text(app))
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, FormScreen) and service.calls == []
        field = app.screen.query_one("#file", Input)
        for file, says in (
            ("no/such/x", "there is no directory"),
            (".", "that is a directory"),
            ("~nobody-of-that-name/x", "home directory"),
        ):
            field.value = file
            await until(lambda says=says: says in screen_text(app))  # type: ignore[misc]
        field.value = "dev.quicksand"
        await pilot.press("down", "down", "down", "right")
        await until(lambda: "replaces a file of that name" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.calls)
        assert "replace=True" in service.calls[-1]


async def test_an_import_shows_what_it_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.quicksand").touch()
    service = FakeService()
    service.imported.notes = ("[b]it is full[/b]",)
    async with saves_shown(service, "i") as (app, pilot):
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.press(*"nope")
        await until(lambda: "there is no such file" in screen_text(app))
        await pilot.press("ctrl+u", *"x.quicksand", "down", *"dev")
        await until(lambda: "there is a save dev already" in screen_text(app))
        await pilot.press("3")
        await until(lambda: "import --name dev3 x.quicksand" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, ReportScreen))
        await until(lambda: "Know that [b]it is full[/b]" in screen_text(app))
        await until(lambda: "dev3 is imported" in screen_text(app))
        assert service.calls == [f"import {ImportSpec(file='x.quicksand', name='dev3')}"]
        await pilot.press("j", "k", "enter")
        await until(lambda: isinstance(app.screen, SavesScreen))


async def test_an_import_under_way_is_told_above_and_c_cancels_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x").touch()
    service = FakeService()
    service.hold = asyncio.Event()
    async with saves_shown(service, "i") as (app, pilot):
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.press("x", "enter")
        await until(lambda: "◐ importing: reading 50% (x)" in screen_text(app))
        await pilot.press("c")
        await until(lambda: service.undone)


async def test_verifying_marks_what_is_whole() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("space", "space")
        service.hold = asyncio.Event()
        await pilot.press("F")
        await until(lambda: screen_text(app).count("◐ verifying: read") == 3)
        service.hold.set()
        await until(lambda: "2 saves are whole: 64M read in 1.0 s" in toasts(app))
        assert last_command(app) == ("quicksand-tui saves verify --deep dev dev2", "done")
        await until(lambda: screen_text(app).count("✓ whole") == 2)
        await pilot.press("escape", "f")
        await until(lambda: last_command(app)[0] == "quicksand-tui saves verify lost")


async def test_names_are_copied() -> None:
    async with saves_shown(None, "y") as (app, pilot):
        await until(lambda: app.clipboard == "my-app")
        await pilot.press("asterisk", "y")
        await until(lambda: app.clipboard == "my-app\ndamaged\ndev\ndev2\nlost")
        assert toasts(app)[-1] == "Copied 5 names, if the terminal allows it"
