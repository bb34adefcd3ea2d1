"""For tests of the screen of saves and that of the trash."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from quicksand_tui.screens.browsing import BrowsingScreen
from quicksand_tui.screens.saves_and_trash import SavesScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.unit.app.fakes import SIZE, FakeService, app_of, shown, until


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
        await until(lambda: app.present.saves.loaded)
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
