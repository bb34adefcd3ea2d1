"""The wall, as a user meets it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image
from quicksand.things.status import Status
from quicksand_driver.textual_private import forward
from textual.events import Key
from textual.pilot import Pilot

from quicksand_tui.door.service_protocol import LogKind, ShellView
from quicksand_tui.home.config_file import Settings
from quicksand_tui.model.jobs import CommandOutput
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.wall_plan import WatchedTerminal
from quicksand_tui.screens.run_many_table import RunManyScreen
from quicksand_tui.screens.wall_screen import WallScreen
from quicksand_tui.ui.app import QuicksandApp
from tests.each import each
from tests.unit.app.fake_wall import FakeWall
from tests.unit.app.fakes import (
    FULL,
    PAUSED,
    WEB,
    FakeLog,
    FakeService,
    screen_text,
    shown,
    toasts,
    until,
)

NINE = tuple(replace(WEB, id=f"{n:012x}", name=f"agent-{n}") for n in range(1, 10))


class WallService(FakeService):
    def __init__(self, views: tuple[SandboxView, ...] = NINE) -> None:
        super().__init__(replace(FULL, sandboxes=views))
        self.wall = FakeWall()
        for view in views:
            if not view.has_display:
                self.wall.put(view.id, terminal())

    def open_wall(self) -> Any:
        return self.wall


def terminal(session: str = "p1", program: str = "pytest -q", **facts: object) -> WatchedTerminal:
    values: dict[str, object] = {"columns": 80, "rows": 24, "directory": "/root/src", **facts}
    return WatchedTerminal(session=session, birth=f"born-{session}", program=program, **values)  # type: ignore[arg-type]


@asynccontextmanager
async def wall_shown(
    service: WallService,
    *,
    size: tuple[int, int] = (120, 36),
    ascii_glyphs: bool = False,
    settings: Settings | None = None,
) -> AsyncIterator[tuple[QuicksandApp, Pilot[int], WallScreen]]:
    async with shown(service, size=size, ascii_glyphs=ascii_glyphs, settings=settings) as (
        app,
        pilot,
    ):
        await pilot.press("W")
        await until(lambda: isinstance(app.screen, WallScreen))
        screen = app.screen
        assert isinstance(screen, WallScreen)
        await until(lambda: screen.view.places)
        await pilot.pause()
        yield app, pilot, screen


async def draw(screen: WallScreen, pilot: Pilot[int]) -> str:
    """Draw what there is now."""
    screen.view.update_tiles()
    await pilot.pause()
    return screen_text(pilot.app)  # type: ignore[arg-type]


def names(screen: WallScreen) -> list[str]:
    return [tile.facts.name for tile in screen.view.tiles.shown if tile.facts is not None]


async def test_a_key_opens_a_live_tile_for_each_sandbox_that_runs() -> None:
    service = WallService()
    async with wall_shown(service) as (app, pilot, screen):
        assert service.wall.wanted == {view.id for view in NINE}
        for view in NINE:
            service.wall.say(view.id, f"{view.name} works\r\n$ ".encode())
        text = await draw(screen, pilot)
        assert all(f"{view.name} ● 2% ─ pytest -q ~/src" in text for view in NINE)
        assert "9 tiles" in text
        await until(lambda: all(f"{view.name} works" in screen_text(app) for view in NINE))


async def test_what_calls_comes_first_and_goes_back_when_it_was_seen() -> None:
    service = WallService()
    async with wall_shown(service) as (_, pilot, screen):
        before = names(screen)
        service.wall.say(NINE[4].id, b"\a")
        text = await draw(screen, pilot)
        assert names(screen) == ["agent-5", *(name for name in before if name != "agent-5")]
        assert "♪ rang the bell" in text and "1 wants you" in text
        await pilot.press("home")
        await pilot.press("right")
        await draw(screen, pilot)
        assert names(screen) == before


async def test_enter_goes_into_the_pane_of_the_tile() -> None:
    service = WallService(NINE[:2])
    service.wall.put(NINE[1].id, terminal("p1"), terminal("p2", "vim notes"))
    service.left_shells = tuple(
        ShellView(session=f"p{n}", command="bash", created=n, birth=f"born-p{n}", clients=n - 1)
        for n in (1, 2)
    )
    async with wall_shown(service) as (app, pilot, screen):
        await draw(screen, pilot)
        await pilot.press("end")
        await pilot.press("enter")
        await until(lambda: app.screen is app.main)
        await until(lambda: getattr(app.focused, "status", None) is not None)
        await until(lambda: app.focused.status.session == "p2")  # type: ignore[union-attr]
        assert app.main.selection.sandbox == NINE[1]
        assert service.wall.closed


async def test_what_is_typed_right_behind_enter_goes_to_the_shell() -> None:
    service = WallService(NINE[:1])
    view = ShellView(session="p1", command="bash", created=1, birth="born-p1", is_pane=True)
    service.left_shells = (view,)
    async with wall_shown(service) as (app, pilot, screen):
        await draw(screen, pilot)
        for key in ("enter", "e", "c", "h", "o"):
            app.post_message(Key(key, "\r" if key == "enter" else key))
        await until(lambda: service.terminals and service.terminals[0].typed == b"echo")
        assert app.screen is app.main


async def test_a_line_that_is_read_together_with_enter_goes_to_the_shell() -> None:
    """As `tmux send-keys` types it: all keys are read before the first is handled. Letters among
    them are keys of the wall and of the main screen, too."""
    service = WallService(NINE[:1])
    view = ShellView(session="p1", command="bash", created=1, birth="born-p1", is_pane=True)
    service.left_shells = (view,)
    async with wall_shown(service) as (app, pilot, screen):
        await draw(screen, pilot)
        keys = [Key("enter", "\r"), *(Key(letter, letter) for letter in "xdqz"), Key("enter", "\r")]
        for key in keys:  # as `QuicksandApp.on_event` has them, without a pause
            if not app.key_routing.drops(key):
                forward(app, key)
        await until(lambda: service.terminals and service.terminals[0].typed == b"xdqz\r")
        assert app.screen is app.main


def two_shells(service: WallService) -> None:
    """The first sandbox has two shells, of which the panes show the older one first."""
    service.wall.put(NINE[0].id, terminal("p1"), terminal("p2", "apply"))
    service.left_shells = tuple(
        ShellView(session=f"p{n}", command="bash", created=n, birth=f"born-p{n}", is_pane=True)
        for n in (1, 2)
    )


def typed_at_once(app: QuicksandApp, keys: str) -> None:
    """All keys are read before the first one is handled."""
    for letter in keys:
        key = Key("enter" if letter == "\r" else letter, letter)
        if not app.key_routing.drops(key):
            forward(app, key)


def typed_into(service: WallService) -> dict[str, bytes]:
    return {guest.session: guest.typed for guest in service.terminals}


@each("known", [False, True])
async def test_keys_behind_enter_go_to_the_terminal_of_the_tile_and_to_no_other(
    known: bool,
) -> None:
    """Also if the panes of that sandbox were shown before, and another one had the focus."""
    service = WallService(NINE[:1])
    two_shells(service)
    async with shown(service, size=(120, 36)) as (app, pilot):
        if known:
            await pilot.press("s")
            await until(lambda: len(service.terminals) == 2)
            await until(lambda: app.main.area.shells.pane is not None)
            await until(lambda: app.focused is app.main.area.shells.pane)
            assert app.focused.status.session == "p1"  # type: ignore[union-attr]
            await pilot.press("ctrl+right_square_bracket", "d")
        await pilot.press("W")
        await until(lambda: isinstance(app.screen, WallScreen))
        screen = app.screen
        assert isinstance(screen, WallScreen)
        await until(lambda: len(screen.view.places) == 2)
        await pilot.press("end")
        typed_at_once(app, "\ry\r")
        await until(lambda: b"y\r" in typed_into(service).values())
        assert typed_into(service) == {"p1": b"", "p2": b"y\r"}
        await until(lambda: app.focused is app.main.area.shells.pane)
        assert app.focused.status.session == "p2"  # type: ignore[union-attr]


async def test_keys_for_two_tiles_wait_each_for_its_own_pane() -> None:
    service = WallService(NINE[:1])
    two_shells(service)
    service.hold_shells = asyncio.Event()
    async with shown(service, size=(120, 36)) as (app, pilot):
        for at, keys in (("end", "\rtwo"), ("home", "\rone")):
            await pilot.press("W")
            await until(lambda: isinstance(app.screen, WallScreen))
            screen = app.screen
            assert isinstance(screen, WallScreen)
            await until(lambda screen=screen: len(screen.view.places) == 2)  # type: ignore[misc]
            await pilot.press(at)
            typed_at_once(app, keys)
            await until(lambda: app.screen is app.main)
            await pilot.press("ctrl+right_square_bracket", "d")
        service.hold_shells.set()
        await until(lambda: len(service.terminals) == 2)
        await until(lambda: all(typed_into(service).values()))
        assert typed_into(service) == {"p1": b"one", "p2": b"two"}


async def test_keys_behind_an_enter_that_leads_nowhere_are_nobodys() -> None:
    """They are no commands of the screen below either: d would ask to delete."""
    desk = replace(WEB, id="d" * 12, name="desk", has_display=True)
    service = WallService((desk,))
    service.wall.put(desk.id)
    async with wall_shown(service) as (app, pilot, _):
        typed_at_once(app, "\rdx")
        await until(lambda: app.screen is app.main)
        await pilot.pause()
        assert app.screen is app.main and not service.terminals
        assert not [call for call in service.calls if call.startswith(("delete", "stop"))]


async def test_a_terminal_that_no_pane_shows_gets_one_and_the_keys() -> None:
    service = WallService(NINE[:1])
    two_shells(service)
    both, service.left_shells = service.left_shells, service.left_shells[:1]
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("s")
        await until(lambda: len(service.terminals) == 1)
        await until(lambda: app.focused is app.main.area.shells.pane)
        await pilot.press("ctrl+right_square_bracket", "d", "W")
        service.left_shells = both
        await until(lambda: isinstance(app.screen, WallScreen))
        screen = app.screen
        assert isinstance(screen, WallScreen)
        await until(lambda: len(screen.view.places) == 2)
        await pilot.press("end")
        typed_at_once(app, "\ry\r")
        await until(lambda: typed_into(service).get("p2") == b"y\r")
        assert typed_into(service) == {"p1": b"", "p2": b"y\r"}


async def test_a_command_runs_in_the_marked_ones() -> None:
    service = WallService()
    async with wall_shown(service) as (app, pilot, _):
        await pilot.press("space", "space")
        assert "2 marked" in screen_text(app)
        await pilot.press("exclamation_mark")
        await until(lambda: isinstance(app.screen, RunManyScreen))
        await pilot.pause()
        text = screen_text(app)
        assert "agent-1" in text and "agent-2" in text


async def test_those_marked_in_the_list_are_watched_alone() -> None:
    service = WallService()
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("j", "j", "space", "space", "W")
        await until(lambda: isinstance(app.screen, WallScreen))
        screen = app.screen
        assert isinstance(screen, WallScreen)
        await until(lambda: len(screen.view.places) == 2)
        assert service.wall.wanted == {NINE[2].id, NINE[3].id}
        await pilot.press("a")
        await until(lambda: len(service.wall.wanted) == 9)


async def test_hidden_it_watches_nothing() -> None:
    service = WallService()
    async with wall_shown(service) as (app, pilot, screen):
        await pilot.press("question_mark")
        await until(lambda: app.screen is not screen)
        await until(lambda: not service.wall.wanted)
        await pilot.press("escape")
        await until(lambda: len(service.wall.wanted) == 9)
        await pilot.press("escape")
        await until(lambda: app.screen is app.main)
        await until(lambda: service.wall.closed)
        assert not screen.view.is_attached


async def test_more_tiles_than_fit_are_on_further_pages() -> None:
    many = tuple(replace(WEB, id=f"{n:012x}", name=f"a{n}") for n in range(1, 21))
    async with wall_shown(WallService(many), size=(80, 24)) as (app, pilot, screen):
        assert "20 tiles, 1–8 shown" in screen_text(app)
        await pilot.press("pagedown")
        assert "20 tiles, 9–16 shown" in screen_text(app)
        await pilot.press("end")
        assert "20 tiles, 17–20 shown" in screen_text(app)
        assert screen.view.places[-1][0].facts.name == "a20"  # type: ignore[union-attr]


async def test_one_tile_can_be_shown_alone() -> None:
    async with wall_shown(WallService()) as (app, pilot, screen):
        await pilot.press("z")
        assert len(screen.view.places) == 1
        assert screen.view.places[0][1].width == app.size.width
        await pilot.press("z")
        assert len(screen.view.places) == 9


async def test_a_guest_that_is_too_old_to_be_watched_says_so() -> None:
    service = WallService(NINE[:1])
    service.wall.listed.clear()
    service.wall.whys[NINE[0].id] = "the guest's agent is too old to have its terminals watched"
    async with wall_shown(service) as (_, pilot, screen):
        assert "too old to have its terminals watched" in await draw(screen, pilot)


async def test_without_shells_the_desktop_or_the_console_is_shown() -> None:
    desk = replace(WEB, id="d" * 12, name="desk", has_display=True)
    plain = replace(WEB, id="e" * 12, name="plain")
    service = WallService((desk, plain))
    service.wall.put(desk.id)
    service.wall.put(plain.id)
    service.pictures[""] = Image.new("RGB", (64, 48), "red")
    service.logs[LogKind.CONSOLE] = FakeLog("booting\nlogin: \x1b]0;evil\x07")
    async with wall_shown(service) as (_, pilot, screen):
        await until(lambda: any(tile.cells for tile in screen.view.tiles.shown))
        text = ""
        while "login:" not in text:
            text = await draw(screen, pilot)
        assert "desk ● 2% ─ desktop" in text and "plain ● 2% ─ console" in text
        assert "▀" in text


async def test_what_the_last_command_has_written_is_shown_where_no_shell_is() -> None:
    service = WallService(NINE[:2])
    service.wall.put(NINE[0].id)
    output = CommandOutput(exit_code=3, seconds=0.2, lines=("two tests", "failed"))
    service.outputs[NINE[0].id] = output
    async with wall_shown(service) as (app, pilot, screen):
        assert "agent-1 ● 2% ─ console" in await draw(screen, pilot)
        await pilot.press("space", "exclamation_mark")
        await until(lambda: isinstance(app.screen, RunManyScreen))
        await pilot.pause()
        await pilot.press(*"make", "enter")
        await until(lambda: app.dialogs.last_command_of(NINE[0].id) is not None)
        await pilot.press("escape")
        await until(lambda: app.screen is screen)
        text = await draw(screen, pilot)
        assert "agent-1 ● 2% ─ $ make" in text
        assert "$ make" in text and "two tests" in text and "✗ exit 3" in text


async def test_paused_ones_keep_their_last_picture() -> None:
    service = WallService((*NINE[:1], PAUSED))
    async with wall_shown(service) as (app, pilot, screen):
        service.wall.say(NINE[0].id, b"here\r\n")
        await draw(screen, pilot)
        service.change(NINE[0].id, Status.PAUSED)
        await app.look()
        text = await draw(screen, pilot)
        assert "agent-1 ‖" in text and "here" in text and "paused" in text


async def test_where_nothing_runs_the_key_says_so() -> None:
    async with shown(WallService(())) as (app, pilot):
        await pilot.press("W")
        await until(lambda: toasts(app))
        assert toasts(app) == ["nothing is running: a starts a stopped sandbox"]


async def test_the_line_has_it_too() -> None:
    async with shown(WallService(), size=(120, 36)) as (app, pilot):
        await pilot.press("colon")
        await pilot.pause()
        await pilot.press(*"wall", "enter")
        await until(lambda: isinstance(app.screen, WallScreen))


async def test_in_ascii_it_has_no_other_character() -> None:
    service = WallService()
    async with wall_shown(service, ascii_glyphs=True) as (app, pilot, screen):
        service.wall.say(NINE[0].id, "漢字 é ┃ ●\r\n".encode())
        assert (await draw(screen, pilot)).isascii()
        assert app.screen is screen


@each("seed", range(3))
async def test_a_hostile_guest_changes_no_cell_outside_its_tile(seed: int) -> None:
    service = WallService()
    chance = random.Random(seed)
    async with wall_shown(service) as (_, pilot, screen):
        await draw(screen, pilot)
        victim = NINE[4].id
        place = next(p for t, p in screen.view.places if t.key.sandbox_id == victim)

        top = 1 + place.y  # below the line with the counts

        async def outside() -> list[tuple[object, object]]:
            await draw(screen, pilot)
            return [
                (strip.crop(0, place.x), strip.crop(place.x + place.width))
                if top <= y < top + place.height
                else (strip, None)
                for y, strip in enumerate(screen._compositor.render_strips())
            ]

        # The tile's own call for attention may move tiles, so it makes none here.
        before = await outside()
        for _ in range(25):
            noise = bytes(b for b in chance.randbytes(600) if b != 7)
            service.wall.say(victim, b"\x1b[999;999H\x1b[?1049h\x9b" + noise.replace(b"133", b""))
            after = await outside()
            assert [tile.key.sandbox_id for tile, _ in screen.view.places][4] == victim
            assert after == before


async def test_titles_tell_the_time_since_the_last_output_and_cost_nothing_while_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = WallService(NINE[:1])
    async with wall_shown(service) as (app, pilot, screen):
        view = screen.view
        service.wall.say(NINE[0].id, b"once\r\n")
        await draw(screen, pilot)
        heard = view.tiles.shown[0].screen.heard
        assert heard is not None
        monkeypatch.setattr(view.tiles.shown[0].screen, "heard", heard - 42)
        assert "agent-1 ● 2% idle 40s ─ pytest" in await draw(screen, pilot)
        await pilot.press("question_mark")
        await until(lambda: app.screen is not screen and not service.wall.wanted)
        drawn: list[float] = []
        monkeypatch.setattr(view, "update_tiles", lambda: drawn.append(0))
        assert not [timer for timer in view._timers if timer.name.startswith("set_timer")]
        await pilot.press("escape")
        await until(lambda: app.screen is screen and drawn)
        assert service.wall.wanted == {NINE[0].id}
