"""The screen of the trash, driven by keys and by the mouse."""

from __future__ import annotations

from quicksand_tui.screens.confirm import ConfirmScreen
from quicksand_tui.screens.form import FormScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen, TrashScreen
from tests.unit.app.fake_saves import GONE
from tests.unit.app.fakes import FakeService, screen_text, toasts, until
from tests.unit.app.saves_screens import browsing, last_command, rows, saves_shown


async def test_what_is_in_the_trash_comes_back_under_its_name_or_another() -> None:
    service = FakeService()
    async with saves_shown(service, "T") as (app, pilot):
        await until(lambda: isinstance(app.screen, TrashScreen))
        await until(lambda: "stays 5d more for sure" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: "There is a save dev already" in screen_text(app))
        await until(lambda: f"quicksand-tui restore --name dev-2 {GONE.id}" in screen_text(app))
        await pilot.press("enter")
        await until(lambda: service.calls == [f"restore {GONE.key} dev-2"])
        await until(lambda: rows(app) == 1)
        await pilot.press("enter")
        await until(lambda: "The trash is empty." in screen_text(app))
        assert last_command(app)[0].startswith("quicksand-tui restore ")
        await pilot.press("q")
        await until(lambda: isinstance(app.screen, SavesScreen))
        await until(lambda: rows(app) == 7)


async def test_out_of_the_trash_for_good_only_after_a_question() -> None:
    service = FakeService()
    async with saves_shown(service, "T", "asterisk", "d") as (app, pilot):
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        text = screen_text(app)
        for words in ("Remove 2 things for good?", "dev, 64M, removed 2d ago", "That frees 80K."):
            assert words in text
        await pilot.press("d", "D", "enter")
        await until(lambda: isinstance(app.screen, TrashScreen))
        assert service.calls == []
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, ConfirmScreen))
        await pilot.press("ctrl+y")
        await until(lambda: "2 things are deleted for good" in toasts(app))
        assert last_command(app)[0].startswith("quicksand-tui trash --empty ")
        await pilot.press("d", "enter", "y")
        await until(lambda: len(toasts(app)) == 4)
        assert set(toasts(app)[1:]) == {"nothing is in the trash"}


async def test_the_trash_is_filtered_ordered_and_copied() -> None:
    async with saves_shown(None, "T", "slash", *"spo", "enter") as (app, pilot):
        await until(lambda: rows(app) == 1)
        await pilot.press("y")
        await until(lambda: app.clipboard == "spoilt")
        await pilot.press("escape", "o")
        await until(lambda: " by name" in screen_text(app))
        table = browsing(app).browser.table
        assert await pilot.double_click(table, offset=(5, 1))
        await until(lambda: isinstance(app.screen, FormScreen))
