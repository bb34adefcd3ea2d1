"""Keys get an answer that helps where the focus is."""

from __future__ import annotations

from dataclasses import replace

from quicksand_panes.widgets import Pane

from quicksand_tui.actions.all_actions import default_keymap
from quicksand_tui.cockpit.desktop_view import DesktopView
from quicksand_tui.model.world import World
from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.views.main_layout import Part
from quicksand_tui.widgets.long_table import LongTable
from tests.each import each, trying
from tests.unit.app.fakes import (
    DB,
    FULL,
    KEPT,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

PREFIX = "ctrl+right_square_bracket"
DESKTOP: World = replace(KEPT, sandboxes=(replace(WEB_PAST, has_display=True),))


@each(
    ("scope", "action", "hint"),
    [
        ("main", "undo", "U"),
        ("panes", "undo", "ctrl-] U"),
        ("panes", "start", "ctrl-] d, a"),
        ("desktop", "checkpoint", "ctrl-] c"),
        ("log", "stop", "x"),
        ("log", "new", "esc, n"),
        ("saves", "shell", "esc, s"),
        ("saves", "command", ":"),
    ],
)
def test_a_hint_names_the_keys_that_count_where_the_focus_is(
    scope: str, action: str, hint: str
) -> None:
    assert default_keymap().seen_from(scope).hint(action) == hint


async def test_after_a_revert_from_a_shell_the_way_back_is_named_with_the_prefix() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))
        await pilot.press(PREFIX, "u", "enter")
        await until(lambda: any("(undo: ctrl-] U)" in toast for toast in toasts(app)))


async def test_after_a_revert_from_the_desktop_the_focus_is_there_again() -> None:
    service = FakeService(DESKTOP)
    async with shown(service) as (app, pilot):
        await pilot.press("w")
        await until(lambda: isinstance(app.focused, DesktopView))
        await pilot.press(PREFIX, "u")
        await until(lambda: app.main.places.part is Part.TREE)
        await pilot.press("enter")
        await until(lambda: any(call.startswith("revert") for call in service.calls))
        await until(lambda: not app.operations.jobs)
        assert isinstance(app.focused, DesktopView)
        await until(lambda: any("(undo: ctrl-] U)" in toast for toast in toasts(app)))


async def test_a_second_u_asks_before_it_goes_back() -> None:
    service = FakeService(KEPT)
    async with shown(service) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("u", "u")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        assert not any(call.startswith("revert") for call in service.calls)
        assert "kept as a checkpoint: U reverts" in " ".join(screen_text(app).split())
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await pilot.press("u")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: any(call.startswith("revert") for call in service.calls))


async def test_a_dialog_answers_a_key_that_it_does_not_know() -> None:
    async with shown(FakeService(KEPT)) as (app, pilot):
        for key, says in {
            "d": "ctrl+y: delete, esc: cancel",
            "n": "esc leaves",
            "J": "esc closes",
            "at": "y copies all",
            "question_mark": "esc",
        }.items():
            with trying(key):
                app.clear_notifications()
                await pilot.press(key)
                await until(lambda: app.screen is not app.main and app.screen.is_mounted)
                await pilot.press("f9")
                await until(lambda: toasts(app))
                (told,) = toasts(app)
                assert told.startswith("f9 does nothing here: ") and says in told
                await pilot.press("f9", "f8")
                await pilot.pause()
                assert len(toasts(app)) == 1, "one answer is enough for now"
                await pilot.press("escape")
                await until(lambda: app.screen is app.main)


async def test_what_a_filter_looks_at_is_seen() -> None:
    """`!debian` hides sandboxes of that image: so the image is shown then, even where there is no
    room for it otherwise."""
    async with shown(FakeService(FULL), size=(36, 24)) as (app, pilot):
        table = app.main.sandboxes.table
        assert not table.shows_column("image")
        await pilot.press("slash", *"!debian")
        await until(lambda: app.main.sandboxes.query_text == "!debian")
        await until(lambda: table.shows_column("image"))
        await pilot.press("escape")
        await until(lambda: not table.shows_column("image"))


async def test_an_id_that_nobody_sees_hides_nothing() -> None:
    async with shown(FakeService(FULL)) as (app, pilot):
        await pilot.press("slash", "exclamation_mark", *DB.id[:3])
        await until(lambda: app.main.sandboxes.query_text == f"!{DB.id[:3]}")
        assert app.main.sandboxes.table.has_row(DB.id)
        app.main.filter_by(f"id:{DB.id}")
        assert app.main.sandboxes.table.row_count == 1
        assert isinstance(app.main.sandboxes.table, LongTable)


async def test_the_footer_says_that_keys_count_after_the_prefix_and_that_one_is_awaited() -> None:
    async with shown(FakeService(KEPT)) as (app, pilot):
        await pilot.press("s")
        await until(lambda: isinstance(app.focused, Pane))

        def footer() -> str:
            return screen_text(app).splitlines()[-1]

        await until(lambda: footer().startswith("  ctrl-]  % split"))
        await pilot.press(PREFIX)
        await until(lambda: footer().startswith("  ctrl-] …  % split"))
        await pilot.press("d")
        await until(lambda: "ctrl-]" not in footer())
