"""The screen of saves and that of the trash, driven by keys and by the mouse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual import events
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Button, Input

from quicksand_tui import saves_watch
from quicksand_tui.application import QuicksandApp
from quicksand_tui.saved import NO_SAVES, SavesView, VerdictView
from quicksand_tui.saves_spec import ExportSpec, ImportSpec
from quicksand_tui.screens.browsing import BrowsingScreen
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.failure import FailureScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.screens.main import MainScreen
from quicksand_tui.screens.report import ReportScreen
from quicksand_tui.screens.saves import SavesScreen
from quicksand_tui.screens.trash import TrashScreen
from quicksand_tui.snapshot import Failure
from quicksand_tui.text import sanitise
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fake_saves import (
    APP,
    DAMAGED,
    DEV,
    DEV2,
    GONE,
    LOST,
    LOW,
    NOTHING,
    NOW,
    SAVES,
    saved,
    trashed,
    view_of,
)
from tests.unit.app.fakes import (
    DB,
    SIZE,
    WEB,
    FakeService,
    app_of,
    screen_text,
    select,
    send,
    shown,
    toasts,
    until,
)


def browsing(app: QuicksandApp) -> BrowsingScreen:  # type: ignore[type-arg]
    assert isinstance(app.screen, BrowsingScreen)
    return app.screen


@asynccontextmanager
async def saves_shown(
    service: FakeService | None = None,
    *keys: str,
    size: tuple[int, int] = SIZE,
    ascii_glyphs: bool = False,
) -> AsyncIterator[tuple[QuicksandApp, Pilot[int]]]:
    """The screen of saves, read; then ``keys``."""
    async with shown(service, size=size, ascii_glyphs=ascii_glyphs) as (app, pilot):
        await pilot.press("v")
        await until(lambda: isinstance(app.screen, SavesScreen))
        await until(lambda: app.saves.view.loaded)
        await until(lambda: browsing(app).browser.table.has_focus)
        await pilot.press(*keys)
        await pilot.pause()
        yield app, pilot


async def go_to(pilot: Pilot[int], key: str) -> None:
    table = browsing(app_of(pilot)).browser.table
    await until(lambda: table.select(key))
    await until(lambda: table.selected_key == key)
    await pilot.pause()


def last_command(app: QuicksandApp) -> tuple[str, str]:
    record = app.operations.log[-1]
    return record.command, record.outcome


def rows(app: QuicksandApp) -> int:
    return browsing(app).browser.table.row_count


# Looking


async def test_saves_are_listed_and_the_selected_one_is_told_of() -> None:
    async with saves_shown() as (app, pilot):
        text = screen_text(app)
        assert "5 saves, 972M · ✗ 2 with problems · 2 in the trash, 80K" in text
        assert "✗ damaged: the save" in text and "✗ no base: its base" in text
        assert "$ quicksand-tui saves  shows the same" in text
        await go_to(pilot, DEV.key)
        await until(lambda: "led to the save dev2 and the sandbox web" in screen_text(app))
        assert "frees 12K · 64M that others share stay" in screen_text(app)
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen))


async def test_nothing_yet_says_what_comes_next_and_a_new_one_appears() -> None:
    service = FakeService()
    service.kept = NOTHING
    async with saves_shown(service) as (app, pilot):
        assert "V keeps a sandbox's disk as one" in screen_text(app)
        await pilot.press("d", "e")
        await until(lambda: toasts(app)[-1] == "no save is selected")
        service.kept = view_of(DEV)
        await until(lambda: rows(app) == 1)
        # The keys are the list's at once.
        await pilot.press("y")
        await until(lambda: app.clipboard == "dev")


async def test_until_they_are_read_it_says_so() -> None:
    service = FakeService()
    service.kept = NO_SAVES
    async with shown(service) as (app, pilot):
        await pilot.press("v")
        await until(lambda: "Reading the saves…" in screen_text(app))
        await pilot.press("d")
        await until(lambda: "the saves are just being read" in toasts(app))
        service.kept = SavesView(error="Permission denied")
        await until(lambda: "The saves cannot be read." in screen_text(app))


async def test_the_filter_works_as_one_types_and_escape_clears_it_then_leaves() -> None:
    async with saves_shown(None, "slash") as (app, pilot):
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press(*"problem")
        await until(lambda: rows(app) == 2)
        await pilot.press("enter")
        await until(lambda: browsing(app).browser.table.has_focus)
        text = screen_text(app)
        assert "Saves /problem" in text and "2 of 5" in text
        await pilot.press("slash", *" zzz")
        await until(lambda: "Nothing matches" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: rows(app) == 5)
        assert isinstance(app.screen, SavesScreen)
        await until(lambda: browsing(app).browser.table.has_focus)
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, MainScreen))


async def test_what_is_typed_behind_the_slash_in_one_burst_is_no_command() -> None:
    async with saves_shown() as (app, _):
        screen = browsing(app)
        send(app, ["slash", *"devd", "backspace", "2", "enter"])
        await until(lambda: screen.browser.query_text == "dev2" and rows(app) == 1)
        await until(lambda: screen.browser.table.has_focus)
        assert app.screen is screen and screen.browser.order == "name"


async def test_a_save_that_verifying_has_found_damaged_is_not_begun_with() -> None:
    verdict = VerdictView(deep=True, when=NOW, problems=("0.qcow2: it has changed",))
    service = FakeService()
    service.kept = view_of(replace(DEV, verdict=verdict))
    async with saves_shown(service, "enter") as (app, pilot):
        assert toasts(app) == ["dev cannot be used: 0.qcow2: it has changed"]
        await pilot.press("e")
        assert toasts(app)[1:] == ["dev is damaged: it would arrive so"]
        assert isinstance(app.screen, SavesScreen)


async def test_the_order_goes_round_and_heads_can_be_clicked() -> None:
    async with saves_shown() as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("o")
        await until(lambda: "Saves by age" in screen_text(app))
        table = browsing(app).browser.table
        assert table.selected_key == DEV.key
        head = screen_text(app).splitlines()[table.region.y]
        assert await pilot.click(table, offset=(head.index("Frees") - table.region.x, 0))
        await until(lambda: "Saves by frees" in screen_text(app))
        assert table.visible_keys[0] == LOST.key
        assert await pilot.click(table, offset=(head.index("Note") - table.region.x, 0))
        await pilot.press("o")
        await until(lambda: "by frees" not in screen_text(app))
        assert table.visible_keys[0] == APP.key


async def test_marks_stay_while_the_filter_changes_and_tell_what_they_free_together() -> None:
    service = FakeService()
    service.kept = view_of(APP, DEV, DEV2, saved("dev3", own=0, shared=DEV.shared))
    async with saves_shown(service, "slash", *"dev", "enter") as (app, pilot):
        browser = browsing(app).browser
        await until(lambda: rows(app) == 3)
        await pilot.press("asterisk")
        assert [view.name for view in browser.marked] == ["dev", "dev2", "dev3"]
        await until(lambda: "3 marked: 5.0M" in screen_text(app))
        await pilot.press("escape", "g", "space")
        assert [view.name for view in browser.marked] == ["dev", "dev2", "dev3", "my-app"]
        await pilot.press("k", "space")
        assert len(browser.marked) == 3
        await until(lambda: screen_text(app).count("◆ dev") == 3)
        service.kept = view_of(APP, DEV)
        await until(lambda: [view.name for view in browser.marked] == ["dev"])
        await pilot.press("escape")
        await until(lambda: not browser.marked)
        await pilot.press("asterisk", "asterisk")
        assert not browser.marked
        assert isinstance(app.screen, SavesScreen)


async def test_keys_move_as_in_vi_and_the_cursor_stays_on_its_save() -> None:
    service = FakeService()
    many = tuple(saved(f"s{n:03}") for n in range(100))
    service.kept = view_of(*many)
    async with saves_shown(service, "j", "j", "k") as (app, pilot):
        table = browsing(app).browser.table
        assert table.cursor_row == 1
        await pilot.press("G")
        assert table.selected_key == many[-1].key
        assert table.visible_keys[-1] == many[-1].key
        await until(lambda: "s099" in screen_text(app))
        await pilot.press("ctrl+u", "pageup", "ctrl+d", "pagedown", "g", "down", "end", "home")
        assert table.cursor_row == 0
        await go_to(pilot, many[50].key)
        service.kept = view_of(saved("a-new-one"), *many)
        await until(lambda: table.row_count == 101)
        assert (table.selected_key, table.cursor_row) == (many[50].key, 51)
        service.kept = view_of(*many[:50])
        await until(lambda: table.row_count == 50)
        assert table.selected_key == many[49].key


async def test_one_click_selects_and_two_open() -> None:
    async with saves_shown() as (app, pilot):
        table = browsing(app).browser.table
        assert await pilot.click(table, offset=(5, 3))
        await until(lambda: table.selected_key == DEV.key)
        assert await pilot.click(table, offset=(5, table.region.height - 1))
        assert table.selected_key == DEV.key
        await pilot.pause()
        assert isinstance(app.screen, SavesScreen)
        assert await pilot.double_click(table, offset=(5, 4))
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: "run dev2 --name dev2-1" in screen_text(app))


async def test_the_wheel_scrolls_and_the_cursor_comes_back_into_view() -> None:
    service = FakeService()
    service.kept = view_of(*(saved(f"s{n:03}") for n in range(100)))
    async with saves_shown(service) as (app, pilot):
        table = browsing(app).browser.table
        table.scroll_to(y=40, animate=False, immediate=True)
        await until(lambda: "s041" in screen_text(app))
        await pilot.press("j")
        await until(lambda: "s001" in screen_text(app))


async def test_changes_of_others_show_and_nothing_is_drawn_when_nothing_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = FakeService()
    async with saves_shown(service) as (app, _):
        drawn: list[str] = []
        for widget in app.screen.query("*"):
            monkeypatch.setattr(
                widget, "refresh", lambda *_, name=str(widget), **__: drawn.append(name)
            )
        browsing(app).update_snapshot(app.snapshot)
        assert drawn == []


async def test_it_is_looked_at_the_saves_only_while_somebody_sees_them() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        assert app.saves.view is NO_SAVES and not app.saves.is_running
        await pilot.press("v")
        await until(lambda: app.saves.view is SAVES)
        await pilot.press("T", "r")
        await until(lambda: "read saves fresh" in service.calls)
        await pilot.press("escape", "escape")
        await until(lambda: isinstance(app.screen, MainScreen))
        await until(lambda: not app.saves.is_running)
        await pilot.press("v")
        await until(lambda: app.saves.is_running)
        # What was known is there at once.
        assert rows(app) == 5


async def test_the_keys_of_the_screens_open_help_palette_and_commands() -> None:
    async with saves_shown(None, "question_mark") as (app, pilot):
        await until(lambda: isinstance(app.screen, HelpScreen))
        await until(lambda: "Verify every byte of it and of its base" in screen_text(app))
        await pilot.press("escape", "at")
        await until(lambda: "Nothing was done yet" in screen_text(app))
        await pilot.press("escape", "ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SavesScreen))
        names = [command.title for command in app.get_system_commands(app.screen)]
        assert "Export (e)" in names and "Cancel (c)" not in names


async def test_a_paste_is_refused() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, _):
        app.post_message(events.Paste("dyD"))
        await until(lambda: any("Pasting is refused" in note for note in toasts(app)))
        assert service.calls == []


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


@pytest.mark.parametrize(
    ("view", "key", "says"),
    [
        (DAMAGED, "enter", "damaged cannot be used: the save at /saves/damaged cannot be used"),
        (LOST, "enter", "lost cannot be used: its base 'ubuntu', version 24.04"),
        (DAMAGED, "e", "damaged is damaged: it would arrive so"),
        (LOW, "d", "low is needed: top lies on it"),
        (DEV, "c", "nothing is under way"),
    ],
)
async def test_a_key_that_is_not_possible_says_why(view: object, key: str, says: str) -> None:
    service = FakeService()
    service.kept = view_of(*SAVES.saves, LOW)
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, view.key)  # type: ignore[attr-defined]
        await pilot.press(key)
        await until(lambda: any(note.startswith(says) for note in toasts(app)))
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
        command = "quicksand-tui save web -m 'with gcc' --compress web2"
        await until(lambda: f"$ {command}" in screen_text(app))
        service.hold = asyncio.Event()
        await pilot.press("enter")
        await until(lambda: "copying 25%" in screen_text(app))
        assert isinstance(app.screen, MainScreen)
        await pilot.press("S", "x")
        await until(lambda: toasts(app)[-2:] == ["web is just being saved"] * 2)
        service.hold.set()
        await until(lambda: "web2 is saved: 67M" in toasts(app))
        assert "name='web2', note='with gcc', compress=True" in service.calls[-1]
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
        field = app.screen.query_one("#name", Input)
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


async def test_deleting_asks_names_the_losses_and_y_is_the_trash() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, pilot):
        await go_to(pilot, DEV.key)
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        for words in (
            "Delete the save dev?",
            "dev, 64M, made 8d ago: gcc, make",
            "For good, that frees 12K",
            "What came from it works without it: the save",
            "To the trash (y)",
            "For good (D)",
        ):
            assert words in text
        assert app.screen.query_one("#cancel", Button).has_focus
        await pilot.press("y")
        await until(lambda: "1 removed" in toasts(app))
        assert service.calls == [f"delete {DEV.key}"]
        assert last_command(app) == ("quicksand-tui saves rm dev", "done")
        await until(lambda: rows(app) == 4)
        assert "3 in the trash" in screen_text(app)


@pytest.mark.parametrize("key", ["enter", "d", "escape", "n", "q", "space", "tab"])
async def test_no_other_key_deletes(key: str) -> None:
    service = FakeService()
    async with saves_shown(service, "d") as (app, pilot):
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: app.screen.query_one("#cancel", Button).has_focus)
        await pilot.press(key, "enter")
        await pilot.pause()
        assert service.calls == []


async def test_for_good_is_a_choice_within_the_question_only() -> None:
    service = FakeService()
    async with saves_shown(service, "D", "space", "space", "d") as (app, pilot):
        await until(lambda: "Delete 2 saves?" in screen_text(app))
        await pilot.press("D")
        await until(lambda: "2 removed" in toasts(app))
        assert service.calls == [f"delete {APP.key} {DAMAGED.key} now"]
        assert last_command(app)[0] == "quicksand-tui saves rm --now my-app damaged"
        await until(lambda: rows(app) == 3)
        assert "2 in the trash" in screen_text(app)
        assert not browsing(app).browser.marked


async def test_where_there_is_one_answer_the_other_key_is_none() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("D")
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
        await pilot.press("y")
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
        assert service.calls == [f"export {DEV.key} {spec}"]
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
        await until(lambda: "there is such a file already" in screen_text(app))
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
        await until(lambda: "a file of that name makes room" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.calls)
        assert "replace=True" in service.calls[-1]


async def test_an_import_shows_what_it_brought(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.quicksand").touch()
    service = FakeService()
    service.brought = ("It is the save dev3: 64M were in the file.", "Know that [b]it is full[/b]")
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
        assert "dev3 is imported" in screen_text(app)
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
        await until(lambda: "all whole" in toasts(app))
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


# The trash


async def test_what_is_in_the_trash_comes_back_under_its_name_or_another() -> None:
    service = FakeService()
    async with saves_shown(service, "T") as (app, pilot):
        await until(lambda: isinstance(app.screen, TrashScreen))
        await until(lambda: "stays 5d more for sure" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "There is a save dev already" in screen_text(app))
        await until(lambda: f"saves restore --as dev-2 {GONE.id}" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.calls == [f"restore {GONE.key} dev-2"])
        await until(lambda: rows(app) == 1)
        await pilot.press("enter")
        await until(lambda: "The trash is empty." in screen_text(app))
        assert last_command(app)[0].startswith("quicksand-tui saves restore ")
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, SavesScreen))
        await until(lambda: rows(app) == 7)


async def test_out_of_the_trash_for_good_only_after_a_question() -> None:
    service = FakeService()
    async with saves_shown(service, "T", "asterisk", "d") as (app, pilot):
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        for words in ("Remove 2 saves for good?", "dev, 64M, removed 2d ago", "That frees 80K."):
            assert words in text
        await pilot.press("d", "D", "enter")
        await until(lambda: isinstance(app.screen, TrashScreen))
        assert service.calls == []
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("y")
        await until(lambda: "2 gone" in toasts(app))
        assert last_command(app)[0].startswith("quicksand-tui saves trash --empty ")
        await pilot.press("d", "enter", "y")
        await until(lambda: len(toasts(app)) == 4)
        assert set(toasts(app)[1:]) == {"no save is in the trash"}


async def test_the_trash_is_filtered_ordered_and_copied() -> None:
    async with saves_shown(None, "T", "slash", *"spo", "enter") as (app, pilot):
        await until(lambda: rows(app) == 1)
        await pilot.press("y")
        await until(lambda: app.clipboard == "spoilt")
        await pilot.press("escape", "o")
        await until(lambda: "Trash by name" in screen_text(app))
        table = browsing(app).browser.table
        assert await pilot.double_click(table, offset=(5, 1))
        await until(lambda: isinstance(app.screen, FormScreen))


# Every terminal, any text


@pytest.mark.parametrize("size", [(80, 24), (60, 18), (40, 12), (200, 50), (20, 6), (120, 36)])
@pytest.mark.parametrize("ascii_glyphs", [False, True])
async def test_foreign_text_moves_nothing_at_any_size(
    size: tuple[int, int], ascii_glyphs: bool
) -> None:
    texts = [*HOSTILE, "[red]x[/]", "[/]", "木" * 128, "🎉" * 64, 'it\'s "quoted"', "\\["]
    service = FakeService()
    saves, trash = [], []
    for number, text in enumerate(texts):
        note = sanitise(text)
        named = {"key": f"k{number}", "note": note, "parent": note[:60], "children": (note,)}
        saves.append(saved(sanitise(text, limit=200) or "?", **named, problems=(note,)))
        trash.append(trashed(sanitise(text, limit=200) or "?", key=f"t{number}", error=note))
    service.kept = view_of(*saves, trash=trash)
    async with saves_shown(service, size=size, ascii_glyphs=ascii_glyphs) as (app, pilot):
        for prefix, key in (("k", "T"), ("t", "escape")):
            for number in range(len(texts)):
                browsing(app).browser.table.select(f"{prefix}{number}")
                browsing(app)._show_selection()
                text = screen_text(app)
                assert all(char.isprintable() or char == "\n" for char in text)
                assert not ascii_glyphs or text.isascii()
            await pilot.press(key)
            await pilot.pause()
        await pilot.press("asterisk", "d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        assert all(char.isprintable() or char == "\n" for char in screen_text(app))


async def test_without_colour_every_state_has_its_glyph_and_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    service = FakeService()
    service.kept = view_of(*SAVES.saves, replace(DEV2, key="x", name="x"))
    async with saves_shown(service, "j", "j", "F") as (app, _):
        await until(lambda: "✓ whole" in screen_text(app))
        text = screen_text(app)
        assert "✗ damaged" in text and "✗ no base" in text


async def test_in_a_small_terminal_the_list_and_the_keys_are_there() -> None:
    async with saves_shown(size=(40, 12)) as (app, pilot):
        lines = screen_text(app).splitlines()
        assert any("✗ damaged: damaged" in line for line in lines)
        assert "back" in lines[-1]
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await until(lambda: "(y)" in screen_text(app) and "(D)" in screen_text(app))


async def test_every_theme_can_be_chosen() -> None:
    async with saves_shown() as (app, pilot):
        for theme in app.available_themes:
            app.theme = theme
            await pilot.pause()
            assert "✗ damaged" in screen_text(app)


async def test_ten_thousand_are_listed_filtered_and_marked() -> None:
    service = FakeService()
    service.kept = view_of(*(saved(f"save-{n:05}", own=n) for n in range(10_000)))
    async with saves_shown(service, "slash", *"save-042") as (app, pilot):
        await until(lambda: rows(app) == 100)
        await pilot.press("enter", "asterisk", "escape")
        await until(lambda: rows(app) == 10_000)
        assert len(browsing(app).browser.marked) == 100
        await pilot.press("G")
        await until(lambda: "save-09999" in screen_text(app))


async def test_a_watch_that_ends_leaves_nobody_waiting() -> None:
    service = FakeService()
    wanted = True
    watch = saves_watch.SavesWatch(service, is_wanted=lambda: wanted, changed=lambda: None)
    await watch.look()  # at once: nobody sees it
    running = asyncio.create_task(watch.run())
    await until(lambda: watch.view is SAVES)
    looking = asyncio.create_task(watch.look())
    await until(looking.done)
    wanted = False
    watch.refresh()
    await until(running.done)
    assert not watch.is_running
