"""Screens that were left are let go: an app stays open for days."""

from __future__ import annotations

import gc

from textual._styles_cache import StylesCache
from textual.screen import Screen
from textual.widget import Widget

from tests.unit.app.fakes import FakeService, shown

OPENED = ("J", "v", "question_mark")
"""Jobs and saves have a table; the help has none."""


def screens() -> list[Screen[object]]:
    return [found for found in gc.get_objects() if isinstance(found, Screen)]


async def test_a_screen_that_was_left_is_let_go_with_all_that_it_shows() -> None:
    async with shown(FakeService()) as (app, pilot):
        for key in OPENED:
            before = {id(found) for found in screens()}
            await pilot.press(key)
            await pilot.pause()
            assert len(app.screen_stack) > 1, key
            await pilot.press("escape")
            await pilot.pause()
            gc.collect()
            kept = [type(found).__name__ for found in screens() if id(found) not in before]
            assert not kept, key


async def test_what_was_drawn_of_a_screen_that_was_left_is_let_go() -> None:
    async with shown(FakeService()) as (_, pilot):
        for key in OPENED:
            await pilot.press(key)
            await pilot.pause()
            await pilot.press("escape")
            await pilot.pause()
        gc.collect()
        there = gc.get_objects()
        used = {id(found._styles_cache) for found in there if isinstance(found, Widget)}
        drawn = [found for found in there if isinstance(found, StylesCache)]
        assert all(id(found) in used for found in drawn)
