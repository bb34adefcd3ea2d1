"""The desktop tab: pictures of a guest's screen, and its mouse and keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from quicksand.things.status import Status
from quicksand_pixels import Rect
from quicksand_pixels.encoding.canvas import Canvas, Frame
from quicksand_pixels.encoding.half_cells import PackedRows
from textual.geometry import Offset

from quicksand_tui.door.screen_messages import Drawn
from quicksand_tui.home.config_file import ConfigFile, Settings
from quicksand_tui.ui.app import QuicksandApp
from quicksand_tui.views.main_layout import Part, Tab
from tests.each import each
from tests.unit.app.fakes import (
    DB,
    FULL,
    WEB,
    FakeScreen,
    FakeService,
    screen_text,
    select,
    shown,
    toasts,
    until,
)

LARGE = (120, 36)
WATCHED = replace(FULL, sandboxes=(replace(WEB, has_display=True), DB))
PREFIX = "ctrl+right_square_bracket"


class Guest:
    """Draws pictures of one colour for a screen that was asked for, as the worker does."""

    def __init__(self, screen: FakeScreen) -> None:
        self.screen = screen
        self._canvas = Canvas(PackedRows())

    def shows(self, colour: str, *, size: tuple[int, int] = (640, 400)) -> None:
        picture = Image.new("RGBX", size, colour)
        frame = Frame(*size, bytearray(picture.tobytes()))
        view = self.screen.ordered.view(*size)
        assert view is not None
        data = self._canvas.draw(frame, view, [Rect(0, 0, *size)])
        self.screen.sink.drawn(Drawn(*size, False, data))


@asynccontextmanager
async def watching(service: FakeService) -> AsyncIterator[tuple[QuicksandApp, Any, Guest]]:
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        await pilot.press("w")
        await until(lambda: bool(service.screens) and app.main.places.part is Part.AREA)
        await until(lambda: service.screens[-1].ordered.grid[0] > 0)
        yield app, pilot, Guest(service.screens[-1])


def colours(app: QuicksandApp, row: int) -> set[tuple[int, ...]]:
    """The colours of the upper halves of a row of the screen."""
    view = app.main.area.desktop.view
    return {
        tuple(segment.style.color.triplet)
        for segment in view.render_line(row)
        if segment.style is not None
        and segment.style.color is not None
        and segment.style.color.triplet is not None
        and "▀" in segment.text
    }


async def drained(guest: Guest, count: int) -> None:
    await until(lambda: guest.screen.ordered.drained == count)


async def test_pictures_are_shown_and_told_as_drained_one_by_one() -> None:
    async with watching(FakeService(WATCHED)) as (app, _, guest):
        for count, (name, rgb) in enumerate([("red", (255, 0, 0)), ("blue", (0, 0, 255))], 1):
            guest.shows(name)
            await drained(guest, count)
            middle = app.main.area.desktop.view.size.height // 2
            assert colours(app, middle) == {rgb}


async def test_the_overview_has_the_screen_in_small_and_sends_it_nothing() -> None:
    service = FakeService(WATCHED)
    async with shown(service, size=LARGE) as (app, pilot):
        await select(pilot, WEB)
        await until(lambda: bool(service.screens) and service.screens[-1].ordered.grid[0] > 0)
        guest = Guest(service.screens[-1])
        assert guest.screen.ordered.interval_s >= 0.5, "twice a second at most"
        guest.shows("red")
        await drained(guest, 1)
        small = app.main.query_one("#miniature")
        at = (small.region.x + 10, small.region.y + 5)
        await until(lambda: "▀" in screen_text(app).splitlines()[at[1]])
        await pilot.hover(offset=at)
        await pilot.click(offset=at)
        await until(lambda: app.main.area.tab is Tab.DESKTOP)
        assert guest.screen.closed, "what is hidden is not watched"
        assert not guest.screen.events


@each("hidden", ["tab", "wall", "stopped", "low"])
async def test_a_small_screen_that_is_not_seen_costs_nothing(hidden: str) -> None:
    service = FakeService(WATCHED)
    async with shown(service, size=(80, 24) if hidden == "low" else LARGE) as (app, pilot):
        await select(pilot, WEB)
        if hidden == "low":
            await pilot.pause()
            assert not service.screens
            return
        await until(lambda: bool(service.screens) and service.screens[-1].ordered.grid[0] > 0)
        screen = service.screens[-1]
        match hidden:
            case "tab":
                await pilot.press("l")
                await until(lambda: screen.closed)
            case "wall":
                await pilot.press("W")
                await until(lambda: screen.ordered.grid[0] == 0)
            case "stopped":
                gone = replace(WATCHED.sandboxes[0], state=Status.STOPPED)
                service.world = replace(WATCHED, sandboxes=(gone, DB))
                app.refresh_now()
                await until(lambda: screen.closed)


async def test_keys_go_to_the_guest_and_the_prefix_leads_back() -> None:
    async with watching(FakeService(WATCHED)) as (app, pilot, guest):
        await pilot.press("q", "enter", "ctrl+c", "up")
        pressed = [event[0] for event in guest.screen.events if event[1]]
        assert pressed == [ord("q"), 0xFF0D, 0xFFE3, ord("c"), 0xFF52]
        await pilot.press(PREFIX, "d")
        await until(lambda: app.main.places.part is Part.LISTS)
        assert not guest.screen.closed, "it is still seen"


async def test_raw_keys_of_the_apps_own_driver_are_the_guests() -> None:
    async with watching(FakeService(WATCHED)) as (app, _, guest):
        assert app.keys.panes.pane is not None
        app.keys.panes.type(b"a\x1b[A\x1b")
        await until(lambda: len(guest.screen.events) >= 6)
        pressed = [event[0] for event in guest.screen.events if event[1]]
        assert pressed == [97, 0xFF52, 0xFF1B]


async def test_a_click_is_at_its_pixel() -> None:
    async with watching(FakeService(WATCHED)) as (app, pilot, guest):
        guest.shows("green")
        await until(lambda: guest.screen.ordered.drained == 1)
        view = app.main.area.desktop.view
        place = view.frame_view.target  # type: ignore[union-attr]
        x, y = place.x + place.width // 2, place.y + place.height // 2
        await pilot.mouse_down(view, offset=Offset(x, y))
        await pilot.mouse_up(view, offset=Offset(x, y))
        clicks = [event for event in guest.screen.events if len(event) == 3]
        assert [event[2] for event in clicks[-2:]] == [1, 0]
        assert abs(clicks[-1][0] - 320) <= 640 / place.width
        assert abs(clicks[-1][1] - 200) <= 400 / place.height


async def test_zoom_and_save_are_behind_the_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_PICTURES_DIR", str(tmp_path / "pictures"))
    async with watching(FakeService(WATCHED)) as (app, pilot, guest):
        guest.shows("green")
        await until(lambda: guest.screen.ordered.drained == 1)
        await pilot.press(PREFIX, "plus")
        await until(lambda: guest.screen.ordered.zoom > 1)
        await pilot.press(PREFIX, "right")
        await until(lambda: guest.screen.ordered.centre[0] > 0.5)
        await pilot.press(PREFIX, "0")
        await until(lambda: guest.screen.ordered.zoom == 1)
        await pilot.press(PREFIX, "s")
        await until(lambda: bool(guest.screen.saved))
        saved = guest.screen.saved[0]
        assert saved.parent == tmp_path / "pictures/quicksand" and saved.parent.is_dir()
        assert saved.name.startswith("web-") and saved.suffix == ".png"
        await until(lambda: f"Saved as {saved}" in toasts(app))
        await pilot.press(PREFIX, "y")
        await until(lambda: len(guest.screen.saved) == 2)
        copied = guest.screen.saved[1]
        await until(lambda: app.clipboard == str(copied))


async def test_where_pictures_cannot_be_put_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_PICTURES_DIR", str(tmp_path / "file"))
    service = FakeService(WATCHED)
    async with watching(service) as (app, pilot, guest):
        why = f"{tmp_path}/file/quicksand: Not a directory"
        await pilot.press(PREFIX, "s")
        await until(lambda: f"The screen was not saved: {why}" in toasts(app))
        await pilot.press(PREFIX, "r")
        await until(lambda: f"Nothing is recorded: {why}" in toasts(app))
        assert not guest.screen.saved and not service.recordings


async def test_a_recording_goes_on_until_the_key_is_typed_again() -> None:
    service = FakeService(WATCHED)
    async with watching(service) as (app, pilot, _):
        await pilot.press(PREFIX, "r")
        await until(lambda: "recording · " in screen_text(app))
        (recording,) = service.recordings
        assert recording.path.is_absolute() and recording.path.parent.name == "quicksand"
        assert recording.path.name.startswith("web-") and recording.path.suffix == ".gif"
        await pilot.press(PREFIX, "r")
        await until(lambda: f"Recorded as {recording.path}" in toasts(app))
        await until(lambda: " recording · " not in screen_text(app))
        await pilot.press(PREFIX, "r")
        await until(lambda: len(service.recordings) == 2)


async def test_a_hidden_desktop_costs_nothing_and_one_beside_the_focus_little() -> None:
    async with watching(FakeService(WATCHED)) as (_, pilot, guest):
        brisk = guest.screen.ordered.interval_s
        await pilot.press(PREFIX, "d")
        await until(lambda: guest.screen.ordered.interval_s > brisk)
        await pilot.press("right_square_bracket")
        await until(lambda: guest.screen.closed)


async def test_a_screen_that_is_gone_says_why_and_comes_back() -> None:
    async with watching(FakeService(WATCHED)) as (app, _, guest):
        guest.screen.sink.gone("the connection to the display has ended")
        await until(lambda: "the connection to the display" in screen_text(app))
        Guest(guest.screen).shows("red")
        await until(lambda: guest.screen.ordered.drained == 1)
        assert "the connection to the display" not in screen_text(app)


async def test_that_what_is_typed_into_a_paused_one_is_lost_is_said_live() -> None:
    service = FakeService(WATCHED)
    async with watching(service) as (app, pilot, _):
        lost = "paused: what is typed is lost"
        assert lost not in screen_text(app)
        paused = replace(WEB, has_display=True, state=Status.PAUSED)
        service.world = replace(service.world, sandboxes=(paused, DB))
        await until(lambda: lost in screen_text(app))
        await pilot.resize_terminal(72, 24)
        await until(lambda: "paused: keys are lost" in screen_text(app))
        service.world = WATCHED
        await until(lambda: "paused" not in screen_text(app))


async def test_sandboxes_without_a_display_have_no_such_tab() -> None:
    service = FakeService(replace(FULL, sandboxes=(WEB,)))
    async with shown(service, size=LARGE) as (app, pilot):
        assert "Desktop" not in screen_text(app)
        await pilot.press("w")
        await until(lambda: "has no display" in str(toasts(app)))
        assert not service.screens and app.main.area.tab is not Tab.DESKTOP


async def test_a_stopped_sandbox_has_no_screen() -> None:
    stopped = replace(WEB, has_display=True, state=Status.STOPPED)
    service = FakeService(replace(FULL, sandboxes=(stopped,)))
    async with shown(service, size=LARGE) as (app, pilot):
        await pilot.press("w")
        await until(lambda: "it has no screen now" in screen_text(app))
        assert not service.screens and app.main.places.part is Part.LISTS


async def test_a_read_only_app_only_watches(tmp_path: Path) -> None:
    service = FakeService(WATCHED)
    settings = Settings(ConfigFile(tmp_path / "config.toml"), read_only=True)
    async with shown(service, size=LARGE, settings=settings) as (app, pilot):
        app.main.places.choose_tab(Tab.DESKTOP)
        app.main.places.go_to(Part.AREA)
        await until(lambda: bool(service.screens) and app.main.area.desktop.view.has_focus)
        screen = service.screens[-1]
        await until(lambda: screen.ordered.view(640, 400) is not None)
        Guest(screen).shows("red")
        await until(lambda: screen.ordered.drained == 1)
        await pilot.press("q", "enter")
        await pilot.click(app.main.area.desktop.view)
        assert not screen.events


async def test_a_sandbox_without_a_display_shows_its_overview_in_place_of_the_desktop() -> None:
    async with shown(FakeService(WATCHED), size=LARGE) as (app, pilot):
        await select(pilot, WATCHED.sandboxes[0])
        app.main.places.choose_tab(Tab.DESKTOP)
        await select(pilot, DB)
        await until(lambda: app.main.area.tab is Tab.DETAILS)
