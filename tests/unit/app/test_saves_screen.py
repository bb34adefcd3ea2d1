"""The screen of saves, driven by keys and by the mouse; and in every terminal, with any text."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.things.save import Verification
from textual import events
from textual.command import CommandPalette
from textual.widgets import Input

from quicksand_tui.model.shown_saves import NO_SAVES, SavesView
from quicksand_tui.model.text import sanitise
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui import world_watch
from quicksand_tui.verbs.saves import save
from tests.each import each, trying
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fake_saves import (
    APP,
    DEV,
    DEV2,
    LOST,
    NOTHING,
    NOW,
    SAVES,
    saved,
    trashed,
    view_of,
)
from tests.unit.app.fakes import WEB, FakeService, make_app, screen_text, send, shown, toasts, until
from tests.unit.app.saves_screens import browsing, go_to, rows, saves_shown

# Looking


async def test_saves_are_listed_and_the_selected_one_is_told_of() -> None:
    async with saves_shown() as (app, pilot):
        text = screen_text(app)
        assert "5 saves, 972M · ✗ 2 with problems · 2 in the trash, 80K" in text
        assert "✗ damaged: the save" in text and "✗ no base: its base" in text
        assert "$ quicksand-tui run my-app  same as enter" in text
        await go_to(pilot, DEV.key)
        await until(lambda: "children: the save dev2 and the sandbox web" in screen_text(app))
        await until(lambda: "frees 12K · 64M shared with others stays" in screen_text(app))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen))


async def test_nothing_yet_says_what_comes_next_and_a_new_one_appears() -> None:
    service = FakeService()
    service.kept = NOTHING
    async with saves_shown(service) as (app, pilot):
        await until(lambda: "S keeps a sandbox's disk as one" in screen_text(app))
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
        assert " /problem" in text and "2 of 5" in text
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
    verdict = Verification(deep=True, when=NOW, problems=("0.qcow2: it has changed",))
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
        await until(lambda: " by age" in screen_text(app))
        table = browsing(app).browser.table
        assert table.selected_key == DEV.key
        head = screen_text(app).splitlines()[table.region.y]
        assert await pilot.click(table, offset=(head.index("Frees") - table.region.x, 0))
        await until(lambda: " by frees" in screen_text(app))
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
        browsing(app).update_world(app.world)
        assert drawn == []


async def test_it_is_looked_at_the_saves_only_while_somebody_sees_them() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        assert app.present.saves is NO_SAVES and not app.saves.is_running
        await pilot.press("v")
        await until(lambda: app.present.saves is SAVES)
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
        await until(lambda: "You have done nothing yet" in screen_text(app))
        await pilot.press("escape", "ctrl+p")
        await until(lambda: isinstance(app.screen, CommandPalette))
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, SavesScreen))
        found = {command.title: command.help for command in app.get_system_commands(app.screen)}
        assert found["Export (e)"].startswith("Write it") and found["Cancel (c)"].startswith(
            "Not now"
        )


async def test_a_paste_is_refused() -> None:
    service = FakeService()
    async with saves_shown(service) as (app, _):
        app.post_message(events.Paste("dyD"))
        await until(lambda: any("Pasting is refused" in note for note in toasts(app)))
        assert service.calls == []


# Every terminal, any text


SIZES = ((80, 24), (60, 18), (40, 12), (200, 50), (20, 6), (120, 36))


@each(("ascii_glyphs", "sizes"), [(False, SIZES), (True, SIZES[:1])])
async def test_foreign_text_moves_nothing_at_any_size(
    ascii_glyphs: bool, sizes: tuple[tuple[int, int], ...]
) -> None:
    texts = [*HOSTILE, "[red]x[/]", "[/]", "木" * 128, "🎉" * 64, 'it\'s "quoted"', "\\["]
    service = FakeService()
    saves, trash = [], []
    for number, text in enumerate(texts):
        note = sanitise(text)
        named = {"path": f"k{number}", "note": note, "parent": note[:60], "children": (note,)}
        saves.append(saved(sanitise(text, limit=200) or "?", **named, problems=(note,)))
        trash.append(trashed(sanitise(text, limit=200) or "?", path=f"t{number}", error=note))
    service.kept = view_of(*saves, trash=trash)
    async with saves_shown(service, ascii_glyphs=ascii_glyphs) as (app, pilot):
        for size in sizes:
            with trying(size):
                await pilot.resize_terminal(*size)
                await until(lambda size=size: app.size == size)  # type: ignore[misc]
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
                await pilot.press("escape")
                await until(lambda: isinstance(app.screen, SavesScreen))
                await pilot.press("asterisk")


async def test_without_colour_every_state_has_its_glyph_and_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    service = FakeService()
    service.kept = view_of(*SAVES.saves, replace(DEV2, path="/x", name="x"))
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
        await until(lambda: "^Y" in screen_text(app) and "^G" in screen_text(app))


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


async def test_they_are_counted_before_they_are_opened_and_again_after_a_job() -> None:
    service = FakeService()
    app = make_app(service, count_saves_after_s=0.01)
    async with app.run_test(size=(120, 36)):
        await until(lambda: f"2 Saves {len(SAVES.saves)} " in screen_text(app))
        await until(lambda: not app.saves.is_running)
        app.operations.do(save("more"), WEB)
        await until(lambda: f"2 Saves {len(SAVES.saves) + 1} " in screen_text(app))
        await until(lambda: not app.saves.is_running)


async def test_a_watch_that_ends_leaves_nobody_waiting() -> None:
    service = FakeService()
    stack: Any = SimpleNamespace(shows_saves=True, show=lambda: None)
    present: Any = SimpleNamespace(saves=NO_SAVES)
    watch = world_watch.SavesWatch(service, present, stack)
    await watch.look()  # at once: nobody sees it
    running = asyncio.create_task(watch.run())
    await until(lambda: present.saves is SAVES)
    looking = asyncio.create_task(watch.look())
    await until(looking.done)
    stack.shows_saves = False
    watch.refresh()
    await until(running.done)
    assert not watch.is_running
