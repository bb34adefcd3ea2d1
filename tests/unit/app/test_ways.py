"""Short ways: jump mode, the sandbox before, ranges of marks, logs that are saved and copied."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from quicksand_driver.textual_private import forward
from textual.events import Key
from textual.widgets import Static

from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.model.keymap import LETTERS, jump_codes
from quicksand_tui.screens.jump import JumpScreen
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.main_layout import Part
from tests.each import each
from tests.unit.app.fakes import (
    AGENT,
    FULL,
    KEPT,
    WEB,
    FakeLog,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)


def has_letter(app: QuicksandApp, code: str) -> bool:
    """Whether jump mode shows that letter."""
    return isinstance(app.screen, JumpScreen) and any(
        letters.name == code for letters in app.screen.query(Static)
    )


FIVE = tuple(replace(WEB, id=f"{n:012x}", name=f"box-{n}", created=n) for n in range(1, 6))


def five() -> FakeService:
    return FakeService(replace(FULL, sandboxes=FIVE))


@each("count", [0, 1, 26, 27, 300, 700])
def test_no_code_begins_another_one(count: int) -> None:
    codes = jump_codes(count)
    assert len(codes) == min(count, len(LETTERS) ** 2) == len(set(codes))
    assert len({len(code) for code in codes}) <= 1


async def test_a_typed_letter_goes_to_its_row_in_the_list_and_in_the_tree() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await pilot.press("apostrophe")
        await until(lambda: isinstance(app.screen, JumpScreen))
        await pilot.pause()
        rows = app.main.sandboxes.table.row_count
        assert " web" in screen_text(app), "the main screen stays visible"
        await pilot.press(LETTERS[1])
        await until(lambda: app.screen is app.main)
        assert app.main.sandboxes.table.cursor_row == 1
        await pilot.press("k", "apostrophe")
        # The tree of the sandbox above may come only when the first letters are there.
        await until(lambda: has_letter(app, LETTERS[rows + 1]))
        await pilot.press(LETTERS[rows])
        await until(lambda: app.screen is app.main and app.main.places.part is Part.TREE)
        await until(lambda: app.main.checkpoints.table.cursor_row == 0)


async def test_keys_right_behind_a_letter_go_to_the_pane_that_it_names() -> None:
    service = five()
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("s")
        await until(lambda: app.main.area.shells.pane is not None)
        await until(lambda: app.focused is app.main.area.shells.pane)
        await pilot.press("ctrl+right_square_bracket", "%")
        await until(lambda: len(service.terminals) == 2)
        await pilot.press("ctrl+right_square_bracket", "d", "apostrophe")
        first = LETTERS[app.main.sandboxes.table.row_count]
        await until(lambda: has_letter(app, first))
        await pilot.pause()
        for letter in (first, "y"):  # both are read before either is handled
            key = Key(letter, letter)
            if not app.key_routing.drops(key):
                forward(app, key)
        await until(lambda: any(guest.typed for guest in service.terminals))
        assert [guest.typed for guest in service.terminals] == [b"y", b""]


async def test_a_letter_covers_nothing_of_a_panes_title() -> None:
    service = five()
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("s")
        await until(lambda: app.main.area.shells.pane is not None)
        await until(lambda: app.focused is app.main.area.shells.pane)
        await pilot.press("ctrl+right_square_bracket", "%")
        await until(lambda: len(service.terminals) == 2)
        await pilot.press("ctrl+right_square_bracket", "d")
        workspace = app.main.area.shells.workspace
        assert workspace is not None
        panes = list(workspace.panes)
        await until(lambda: all(pane.region.area for pane in panes))
        places = [(pane.region.x, pane.region.y - 1) for pane in panes]
        before = [screen_text(app).splitlines()[y][x:] for x, y in places]
        assert all(title[0] == " " and title[1] in "12" for title in before)
        await pilot.press("apostrophe")
        last = LETTERS[app.main.sandboxes.table.row_count + 1]
        await until(lambda: has_letter(app, last))
        await pilot.pause()
        after = [screen_text(app).splitlines()[y][x:] for x, y in places]
        assert after[1] == last + before[1][1:]
        assert after[0][1:3] == before[0][1:3]


async def test_letters_follow_rows_that_come_while_they_are_shown() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await select(pilot, AGENT)
        await until(lambda: not app.main.checkpoints.table.row_count)
        await pilot.press("apostrophe")
        await until(lambda: has_letter(app, LETTERS[0]))
        rows = app.main.sandboxes.table.row_count
        assert not has_letter(app, LETTERS[rows + 1]), "one for each row, and one for the tabs"
        assert app.main.sandboxes.table.select(WEB.id)
        await until(lambda: has_letter(app, LETTERS[rows + 1]))
        await pilot.press(LETTERS[rows])
        await until(lambda: app.screen is app.main and app.main.places.part is Part.TREE)


async def test_a_letter_of_no_place_is_told_and_escape_leaves() -> None:
    async with shown(five()) as (app, pilot):
        await pilot.press("apostrophe", "0")
        await until(lambda: toasts(app))
        assert "No place has that letter" in toasts(app)[0]
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)


async def test_many_rows_have_two_letters() -> None:
    many = tuple(replace(WEB, id=f"{n:012x}", name=f"b{n}", created=n) for n in range(1, 60))
    service = FakeService(replace(FULL, sandboxes=many))
    async with shown(service, size=(120, 110)) as (app, pilot):
        await pilot.press("apostrophe", LETTERS[0])
        await until(lambda: isinstance(app.screen, JumpScreen))
        await pilot.press(LETTERS[3])
        await until(lambda: app.screen is app.main)
        assert app.main.sandboxes.table.cursor_row == 3


async def test_a_key_goes_back_to_the_sandbox_used_before_and_forth() -> None:
    async with shown(five(), size=(120, 36)) as (app, pilot):
        await pilot.press("minus")
        assert "There is no sandbox before" in toasts(app)[0]
        await pilot.press("y", "j", "j", "y", "j")

        def here() -> str:
            chosen = app.main.selection.sandbox
            return chosen.name if chosen is not None else ""

        names = [view.name for view in FIVE]
        assert here() == names[3]
        await pilot.press("minus")
        assert here() == names[2]
        await pilot.press("minus")
        assert here() == names[3]
        await pilot.press("minus")
        assert here() == names[2]


async def test_a_range_is_marked_while_the_cursor_passes_it() -> None:
    async with shown(five()) as (app, pilot):

        def marked() -> list[str]:
            return sorted(view.name for view in app.main.sandboxes.marked)

        await pilot.press("j", "V", "j", "j")
        assert marked() == ["box-2", "box-3", "box-4"]
        assert "marking a range" in screen_text(app)
        await pilot.press("k")
        assert marked() == ["box-2", "box-3"]
        await pilot.press("V", "j", "j")
        assert marked() == ["box-2", "box-3"]
        await pilot.press("V", "k")
        assert marked() == ["box-2", "box-3", "box-4", "box-5"]
        await pilot.press("escape")
        assert marked() == ["box-2", "box-3"]


async def test_a_log_is_saved_as_a_new_file_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    service = FakeService()
    service.logs[LogKind.CONSOLE] = FakeLog("booting\nlogin: \x1b[31mred\n")
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("l")
        await until(lambda: app.main.area.logs.view.line_count)
        await pilot.press("e")
        await until(lambda: any("Saved as web-console-" in told for told in toasts(app)))
        (file,) = tmp_path.glob("web-console-*.log")
        assert file.read_text().splitlines()[0] == "booting"
        assert "\x1b" not in file.read_text()
        await pilot.press("y")
        await until(lambda: any(told.startswith("Copied") for told in toasts(app)))
        assert app.clipboard.startswith("booting\nlogin:")


async def test_what_cannot_be_saved_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = FakeService()
    service.logs[LogKind.CONSOLE] = FakeLog("booting\n")
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("l")
        await until(lambda: app.main.area.logs.view.line_count)
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        await pilot.press("e")
        await until(lambda: any("The log was not saved" in told for told in toasts(app)))
