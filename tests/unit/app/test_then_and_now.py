"""The screen at a checkpoint beside the present one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image
from quicksand.things.status import Status

from quicksand_tui.cockpit import checkpoint_previews
from quicksand_tui.cockpit.checkpoint_previews import GAP, ThenAndNow
from quicksand_tui.model.jobs import Failure
from quicksand_tui.screens.reports import LookScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.unit.app.fakes import (
    CLEAN,
    KEPT,
    UPGRADED,
    WEB,
    WEB_PAST,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)
from tests.unit.app.test_checkpoints import go_to, open_tree

LARGE = (140, 44)
WITH_SCREEN = replace(WEB_PAST, has_display=True)
RED, BLUE, GREEN = (255, 0, 0), (0, 0, 255), (0, 255, 0)


def world(sandbox: Any = WITH_SCREEN) -> FakeService:
    service = FakeService(replace(KEPT, sandboxes=(sandbox,)))
    service.pictures = {
        UPGRADED.id: Image.new("RGB", (320, 200), RED),
        "": Image.new("RGB", (320, 200), BLUE),
    }
    return service


@asynccontextmanager
async def in_tree(
    service: FakeService, *, ascii_glyphs: bool = False
) -> AsyncIterator[tuple[QuicksandApp, Any, Any]]:
    async with shown(service, size=LARGE, ascii_glyphs=ascii_glyphs) as (app, pilot):
        await select(pilot, WEB)
        yield app, pilot, await open_tree(pilot)


def sides(app: QuicksandApp | ThenAndNow, row: int = 1) -> list[set[tuple[int, ...]]]:
    """The colours of the left half and of the right half of a row."""
    view = app if isinstance(app, ThenAndNow) else app.query_one(ThenAndNow)
    line = view.render_line(row)
    width = (view.size.width - GAP) // 2
    halves = line.crop(0, width), line.crop(width + GAP)
    return [
        {
            tuple(segment.style.bgcolor.triplet)
            for segment in half
            if segment.style is not None
            and segment.style.color is not None
            and segment.style.color == segment.style.bgcolor
            and segment.style.bgcolor is not None
            and segment.style.bgcolor.triplet is not None
        }
        for half in halves
    ]


def is_seen(app: QuicksandApp) -> bool:
    return any(view.display for view in app.query(ThenAndNow))


async def test_both_are_shown_and_the_present_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_previews, "AGAIN_S", 0.01)
    service = world()
    async with in_tree(service) as (app, _, _):
        await until(lambda: is_seen(app) and sides(app) == [{RED}, {BLUE}])
        await until(lambda: "upgraded" in screen_text(app))
        await until(lambda: "now" in screen_text(app))
        service.pictures[""] = Image.new("RGB", (320, 200), GREEN)
        await until(lambda: sides(app) == [{RED}, {GREEN}])
        # The picture of the past is read once, though the present is looked at again and again.
        assert service.calls.count(f"look {WEB.id} {UPGRADED.id}") <= 2


async def test_two_checkpoints_are_compared_the_earlier_one_on_the_left() -> None:
    service = world()
    service.pictures[CLEAN.id] = Image.new("RGB", (320, 200), GREEN)
    async with in_tree(service) as (app, pilot, panel):
        await until(lambda: is_seen(app) and sides(app) == [{RED}, {BLUE}])
        await pilot.press("space")  # its own other side stays the present
        await until(lambda: panel.compared_of(app.main.selection.sandbox) is not None)
        await go_to(pilot, panel, CLEAN.id)
        await until(lambda: sides(app) == [{GREEN}, {RED}])
        head = app.query_one(ThenAndNow).render_line(0).text.split()
        assert head == ["clean", "upgraded"]
        asked = len(service.calls)
        await pilot.press("space", "space")  # now that one, and no more
        await until(lambda: sides(app) == [{GREEN}, {BLUE}])
        assert f"look {WEB.id} {UPGRADED.id}" not in service.calls[asked:]
        await pilot.press("space")
        await go_to(pilot, panel, UPGRADED.id)
        await until(lambda: sides(app) == [{GREEN}, {RED}])


async def test_without_a_display_a_mark_is_for_the_files_only() -> None:
    async with in_tree(world(WEB_PAST)) as (app, pilot, panel):
        await pilot.press("space")
        await until(lambda: panel.compared_of(WEB_PAST) is not None)
        assert not is_seen(app)
        assert toasts(app) == []


async def test_a_checkpoint_without_a_picture_says_so() -> None:
    service = world()
    async with in_tree(service) as (app, pilot, panel):
        await until(lambda: is_seen(app) and sides(app) == [{RED}, {BLUE}])
        await go_to(pilot, panel, CLEAN.id)
        await until(lambda: "no picture was kept" in screen_text(app))
        await until(lambda: sides(app, 3) == [set(), {BLUE}])


async def test_a_failure_is_told_in_its_place() -> None:
    service = world()
    service.failure = Failure(title="t", message="the disk is gone")
    async with in_tree(service) as (app, _, _):
        await until(lambda: "the disk is gone" in screen_text(app))


async def test_a_stopped_sandbox_has_no_present_screen() -> None:
    service = world(replace(WITH_SCREEN, state=Status.STOPPED))
    async with in_tree(service) as (app, _, _):
        await until(lambda: is_seen(app) and sides(app) == [{RED}, set()])
        await until(lambda: "now it is stopped" in screen_text(app))
        assert f"look {WEB.id}" not in service.calls


async def test_without_a_display_nothing_is_asked() -> None:
    service = world(WEB_PAST)
    async with in_tree(service) as (app, pilot, panel):
        await go_to(pilot, panel, CLEAN.id)
        assert not is_seen(app)
        assert not [call for call in service.calls if call.startswith("look")]


async def test_it_rests_while_it_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_previews, "AGAIN_S", 0.01)
    service = world()
    async with in_tree(service) as (app, pilot, _):
        await until(lambda: is_seen(app) and sides(app) == [{RED}, {BLUE}])
        await pilot.press("l")
        await until(lambda: not is_seen(app))
        asked = len(service.calls)
        for _ in range(5):
            await pilot.pause()
        assert not [call for call in service.calls[asked:] if call.startswith("look")]


async def test_ascii_screens_have_colours_only() -> None:
    async with in_tree(world(), ascii_glyphs=True) as (app, _, _):
        await until(lambda: is_seen(app) and sides(app) == [{RED}, {BLUE}])
        assert "▀" not in screen_text(app)


async def test_a_small_terminal_shows_them_in_a_dialog() -> None:
    service = world()
    service.pictures[CLEAN.id] = Image.new("RGB", (320, 200), GREEN)
    async with shown(service, size=(80, 24)) as (app, pilot):
        await select(pilot, WEB)
        panel = await open_tree(pilot)
        assert not is_seen(app)
        await pilot.press("o")
        await until(lambda: isinstance(app.screen, LookScreen))
        view = app.screen.query_one(ThenAndNow)
        assert view.size.width > 70 and view.size.height > 18
        await until(lambda: sides(view) == [{RED}, {BLUE}])
        assert "upgraded" in screen_text(app) and "esc closes" in screen_text(app)
        await pilot.press("escape", "space")  # the other side is that one from now on
        await until(lambda: panel.compared_of(app.main.selection.sandbox) is not None)
        await go_to(pilot, panel, CLEAN.id)
        await pilot.press("o")
        await until(lambda: isinstance(app.screen, LookScreen))
        await until(lambda: sides(app.screen.query_one(ThenAndNow)) == [{GREEN}, {RED}])


async def test_a_checkpoint_without_a_screen_opens_no_dialog() -> None:
    async with in_tree(world(WEB_PAST)) as (app, pilot, _):
        await pilot.press("o")
        await until(lambda: any("web has no display" in words for words in toasts(app)))
        assert app.screen is app.main
