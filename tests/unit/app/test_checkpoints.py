"""Checkpoints, driven by keys: taking, going back, undoing, starting at, deleting."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace

import pytest
from quicksand.things.status import Status
from textual.pilot import Pilot
from textual.widgets import Button, Input

from quicksand_tui.cockpit.tree_panel import TreePanel
from quicksand_tui.model.jobs import Failure
from quicksand_tui.model.shown_sandboxes import CheckpointTree, SandboxView
from quicksand_tui.model.text import sanitise
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.screens.reports import FailureScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.each import trying
from tests.unit.app.corpus import HOSTILE
from tests.unit.app.fakes import (
    DB,
    DB_PAST,
    FULL,
    KEPT,
    NOW,
    PAST,
    SIZE,
    WEB,
    WEB_PAST,
    FakeService,
    app_of,
    drawn,
    kept,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

SIZES = (SIZE, (60, 20), (40, 12))


def last_command(app: QuicksandApp) -> tuple[str, str]:
    record = app.operations.log[-1]
    return record.command, record.outcome


async def open_tree(pilot: Pilot[int], key: str = "u") -> TreePanel:
    """Press ``key``; returns when the tree has the focus, the cursor where the sandbox stands."""
    panel = app_of(pilot).main.checkpoints
    await pilot.press(key)
    await until(lambda: panel.table.has_focus)
    await pilot.pause()
    return panel


async def go_to(pilot: Pilot[int], panel: TreePanel, id_: str) -> None:
    await until(lambda: panel.table.select(id_))
    await until(lambda: panel.table.selected_key == id_)
    await pilot.pause()


async def test_a_checkpoint_is_taken_with_tag_and_note() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.press(*"clean", "down", *"it works")
        await until(lambda: "-m 'it works' clean" in screen_text(app))
        service.hold = asyncio.Event()
        await pilot.press("enter")
        await until(lambda: "running · taking a checkpoint" in screen_text(app))
        service.hold.set()
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"checkpoint {WEB.id} 'clean' 'it works'"
        assert toasts(app) == ["web: checkpoint clean: paused for 23 ms, 12M written"]
        assert last_command(app) == ("quicksand-tui checkpoint web -m 'it works' clean", "done")
        await pilot.press("u")
        await until(lambda: drawn(app, "●", "clean"))


async def test_a_taken_tag_is_said_before_anything_is_done_and_without_one_it_is_numbered() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.press(*"clean", "enter")
        await until(lambda: "the tag clean is taken" in screen_text(app))
        assert isinstance(app.screen, FormScreen)
        assert app.screen.query_one("#tag", Input).has_focus
        await pilot.press("escape")
        await until(lambda: isinstance(app.screen, MainScreen))
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, FormScreen))
        app.screen.query_one("#cancel", Button).focus()
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, MainScreen))
        assert service.calls == []
        await pilot.press("c", "enter")
        await until(lambda: toasts(app))
        assert service.calls[-1] == f"checkpoint {WEB.id} '' ''"
        assert last_command(app)[0] == "quicksand-tui checkpoint web"


async def test_letters_that_come_before_a_dialog_is_there_do_nothing() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):

        def type_ahead() -> None:
            app.main.action_do("checkpoint")
            app.main.action_do("stop")

        app.call_later(type_ahead)
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.pause()
        assert service.calls == []


async def test_a_revert_goes_back_without_a_question_and_undo_comes_back() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        screen = await open_tree(pilot)
        assert screen.table.selected_key == PAST.head
        await until(lambda: "enter reverts, U undoes it" in screen_text(app))
        await go_to(pilot, screen, "c3")
        await pilot.press("j", "k", "k", "k")
        service.hold = asyncio.Event()
        await pilot.press("enter")
        await pilot.press("i")
        await until(lambda: "reverting to clean" in screen_text(app))
        await pilot.press("U")
        await until(lambda: "web is being reverted" in toasts(app))
        service.hold.set()
        await until(lambda: "web: reverted to clean (undo: U)" in toasts(app))
        assert service.calls == [f"revert {WEB.id} c1"]
        assert last_command(app) == ("quicksand-tui revert web clean", "done")
        await pilot.press("u")
        await until(lambda: drawn(app, "●", "clean"))
        await pilot.press("U")
        await until(lambda: "web: revert undone (undo: U)" in toasts(app))
        assert service.calls[-1] == f"undo {WEB.id}"
        assert last_command(app) == ("quicksand-tui undo web", "done")


async def test_a_stopped_one_starts_at_a_checkpoint_and_says_what_that_loses() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await select(pilot, DB)
        await open_tree(pilot)
        await until(lambda: "enter starts it there" in screen_text(app))
        await pilot.press("k", "enter")
        await until(lambda: "db: started at clean" in toasts(app))
        assert service.calls == [f"start {DB.id} at c1"]
        assert last_command(app) == ("quicksand-tui start db --at clean", "done")


async def test_what_enter_does_follows_the_state() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await open_tree(pilot)
        await until(lambda: "enter reverts" in screen_text(app))
        service.change(WEB.id, Status.STOPPED)
        await until(lambda: "enter starts it there" in screen_text(app))
        service.change(WEB.id, Status.STARTING)
        await until(lambda: "◐ starting" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "web is still starting" in toasts(app))
        assert service.calls == []


async def test_notes_and_pins_are_changed_in_the_tree() -> None:
    service = FakeService(KEPT)
    async with shown(service, size=(160, 40)) as (app, pilot):
        panel = await open_tree(pilot)
        await go_to(pilot, panel, "c1")
        await pilot.press("t")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press("end", *" it", "enter")
        await until(lambda: "web: clean has a note" in toasts(app))
        assert service.calls == [f"note {WEB.id} c1 'before the upgrade it'"]
        assert last_command(app)[0] == (
            "quicksand-tui checkpoint note web clean 'before the upgrade it'"
        )
        await until(lambda: not app.operations.jobs)
        await pilot.press("p")
        await until(lambda: "web: clean is pinned: it cannot be deleted" in toasts(app))
        await until(lambda: "it cannot be deleted" in screen_text(app))
        await until(lambda: not app.operations.jobs)
        await pilot.press("d")
        await until(lambda: "clean is pinned: p lets it be deleted" in toasts(app))
        await pilot.press("p")
        await until(lambda: "web: clean can be deleted again" in toasts(app))
        assert last_command(app)[0] == "quicksand-tui checkpoint unpin web clean"


async def test_clones_are_made_of_the_present_and_of_a_checkpoint() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press("b")
        await until(lambda: isinstance(app.screen, FormScreen))
        await until(lambda: isinstance(app.focused, Input))
        await pilot.press("3", "enter")
        await until(lambda: "a number from 1 to 100" not in screen_text(app))
        await until(lambda: any(call.startswith("clone") for call in service.calls))
        assert service.calls == [f"clone {WEB.id} 3"]
        assert last_command(app)[0] == "quicksand-tui clone web -n 3"
        await until(lambda: "web: cloned as web-1, web-2, web-3" in toasts(app))
        panel = await open_tree(pilot)
        await go_to(pilot, panel, "c1")
        await pilot.press("b", "enter")
        await until(lambda: f"clone {WEB.id} 1 c1" in service.calls)
        assert last_command(app)[0] == "quicksand-tui clone web --at clean"


async def test_deleting_asks_names_the_loss_and_stays_in_the_tree() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        screen = await open_tree(pilot)
        await go_to(pilot, screen, "c1")
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        for words in ("Delete the checkpoint clean?", "what it was 2h ago", "before the upgrade"):
            assert words in text
        assert app.screen.query_one("#cancel", Button).has_focus
        await pilot.press("d", "enter")
        await until(lambda: isinstance(app.screen, MainScreen))
        assert service.calls == []
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: "web: checkpoint clean is deleted" in toasts(app))
        assert service.calls == [f"delete {WEB.id} c1"]
        assert last_command(app) == ("quicksand-tui checkpoint rm web clean", "done")
        await until(lambda: "clean" not in screen.table.render_line(3).text)
        assert screen.table.has_focus


async def test_what_cannot_be_read_is_shown_with_the_reason_and_refused() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        screen = await open_tree(pilot)
        await go_to(pilot, screen, "c0ffee00")
        await until(lambda: drawn(app, "✗", "c0ffee00"))
        await pilot.press("enter", "d")
        await until(lambda: len(toasts(app)) == 2)
        assert "cannot be read: no JSON" in toasts(app)[0]
        assert "so others may need it" in toasts(app)[1]
        assert service.calls == []


async def test_changes_of_other_clients_show_and_the_cursor_stays() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        screen = await open_tree(pilot)
        await go_to(pilot, screen, "c1")
        more = (*PAST.checkpoints, kept("c9", "from-a-script", "c2", created=NOW))
        service.set_tree(WEB.id, more, "c9")
        await until(lambda: drawn(app, "●", "from-a-script"))
        assert screen.table.selected_key == "c9", "it follows where the sandbox stands"
        await go_to(pilot, screen, "c1")
        service.set_tree(WEB.id, more[1:], "c9")
        await until(lambda: "c0ffee00" not in screen_text(app))
        assert screen.table.selected_key == "c1"
        service.world = FULL
        await until(lambda: "No checkpoints yet" in screen_text(app))
        service.world = replace(FULL, sandboxes=(DB,))
        await until(lambda: "Tree of db" in screen_text(app))


async def test_a_failure_is_shown_with_its_hint_and_logged() -> None:
    service = FakeService(KEPT)
    service.failure = Failure(title="The revert failed", message="no space", hint="delete some")
    async with shown(service) as (app, pilot):
        await open_tree(pilot)
        await pilot.press("enter")
        await until(lambda: isinstance(app.screen, FailureScreen))
        await until(lambda: "delete some" in screen_text(app))
        await until(lambda: last_command(app)[1] == "failed")
        assert toasts(app) == []


async def test_the_keys_of_the_tree_open_its_help_and_leave() -> None:
    async with shown(FakeService(KEPT)) as (app, pilot):
        await open_tree(pilot)
        await pilot.press("question_mark")
        await until(lambda: "Delete it; asks first" in screen_text(app))
        await pilot.press("escape", "escape")
        await until(lambda: app.main.sandboxes.table.has_focus)


async def test_a_checkpoint_can_be_taken_and_undone_within_the_tree() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await open_tree(pilot)
        await pilot.press("c")
        await until(lambda: isinstance(app.screen, FormScreen))
        await pilot.press(*"new", "enter")
        await until(lambda: drawn(app, "●", "new"))
        assert app.main.checkpoints.table.has_focus
        await until(lambda: not app.operations.jobs)
        await pilot.press("U")
        await until(lambda: f"undo {WEB.id}" in service.calls)


@pytest.mark.parametrize("ascii_glyphs", [False, True])
async def test_foreign_tags_move_nothing_on_any_screen(ascii_glyphs: bool) -> None:
    texts = [*HOSTILE, "[red]x[/]", "[/]", "木" * 128, "🎉" * 64, 'it\'s "quoted"', "\\["]
    made = tuple(
        kept(f"f{n:03}", sanitise(text, limit=128) or "?", note=sanitise(text))
        for n, text in enumerate(texts)
    )
    views: tuple[SandboxView, ...] = (
        replace(
            WEB, tree=CheckpointTree(checkpoints=made, head="f003", error=sanitise(HOSTILE[0]))
        ),
    )
    service = FakeService(replace(FULL, sandboxes=views))
    async with shown(service, ascii_glyphs=ascii_glyphs) as (app, pilot):
        for size in SIZES:
            with trying(size):
                await pilot.resize_terminal(*size)
                assert all(char.isprintable() or char == "\n" for char in screen_text(app))
                screen = await open_tree(pilot)
                for view in made[-6:]:
                    await go_to(pilot, screen, view.id)
                    assert all(char.isprintable() or char == "\n" for char in screen_text(app))
                await go_to(pilot, screen, made[-6].id)
                if not ascii_glyphs:
                    await until(lambda: "[red]x[/]" in screen_text(app))
                await pilot.press("d")
                await until(lambda: isinstance(app.screen, ConfirmScreen))
                assert all(char.isprintable() or char == "\n" for char in screen_text(app))
                await pilot.press("escape", "escape")
                await until(lambda: app.main.sandboxes.table.has_focus)


async def test_all_of_it_can_be_used_in_small_terminals() -> None:
    async with shown(FakeService(KEPT)) as (app, pilot):
        for size in SIZES:
            with trying(size):
                await pilot.resize_terminal(*size)
                await open_tree(pilot)
                await until(lambda: drawn(app, "●", "upgraded"))
                await pilot.press("c")
                await until(lambda: isinstance(app.screen, FormScreen))
                await until(lambda: "Tag" in screen_text(app) and "Note" in screen_text(app))
                await pilot.press("escape", "escape")
                await until(lambda: app.main.sandboxes.table.has_focus)


async def test_in_ascii_details_and_tree_are_there() -> None:
    async with shown(FakeService(KEPT), ascii_glyphs=True) as (app, pilot):
        await open_tree(pilot)
        await until(lambda: re.search(r"\* [|] upgraded +HERE", screen_text(app)) is not None)
        await pilot.press("j")
        await until(lambda: " o tried-something" in screen_text(app))


async def test_the_details_say_how_to_get_a_first_checkpoint() -> None:
    async with shown() as (app, pilot):
        await until(lambda: "c takes one: memory" in screen_text(app))
        await select(pilot, DB)
        await until(lambda: "c takes one while it runs" in screen_text(app))


def test_fakes_have_what_these_tests_are_about() -> None:
    assert WEB_PAST.tree.undo_goes_to is not None
    assert DB_PAST.tree.undo_goes_to is None
