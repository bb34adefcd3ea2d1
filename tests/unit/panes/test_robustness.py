"""Panes when much happens at once, when guests go, and when guests lie."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator

import pytest
from quicksand_panes.gestures import SEARCH_S
from quicksand_panes.guest_terminal import LinkState
from quicksand_panes.widgets import Pane
from quicksand_vt.osc import TITLE_MAX
from textual import events
from textual.geometry import Region, Size
from textual.pilot import Pilot

from tests.each import each
from tests.unit.app.fakes import WEB, FakeService, app_of, screen_text, toasts, until
from tests.unit.panes.test_panes_screen import command, opened, opens, says

BLOCKING_MAX_S = 0.05
"""Of the processor's time at one go: what a user does not notice."""

TRIES = 5
"""What blocks blocks each time; what a busy host adds it does not add each time."""


def resize(pilot: Pilot[int], width: int, height: int) -> None:
    """As the driver tells it; nothing is waited for."""
    assert pilot.app._driver is not None
    pilot.app._driver._size = (width, height)
    size = Size(width, height)
    pilot.app.post_message(events.Resize(size, size))


async def test_a_storm_of_resizes_in_a_flood_of_output() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        flood = "".join(f"\x1b[3{n % 8}mline {n} 漢字\x1b[m of a flood\r\n" for n in range(60))
        for number in range(100):
            resize(pilot, 20 + number * 7 % 100, 6 + number * 5 % 40)
            for guest in service.terminals:
                guest.say(flood.encode())
            await asyncio.sleep(0)
        resize(pilot, 81, 24)
        first, second = service.terminals
        await until(lambda: first.unread == second.unread == 0, timeout=60)
        await until(lambda: (first.size, second.size) == ((40, 21), (40, 21)))
        for pane, guest in zip(workspace.panes, service.terminals, strict=True):
            assert (pane.terminal.columns, pane.terminal.rows) == guest.size
            await says(pilot, guest, b"\x1b[2J\x1b[21;36Hright")

        def is_right() -> bool:
            rows = screen_text(app_of(pilot)).splitlines()
            return any(row.count("right") == 2 and row.endswith("right") for row in rows)

        await until(is_right)


async def test_resizes_in_copy_mode() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        (pane,) = workspace.panes
        (guest,) = service.terminals
        await says(pilot, guest, b"".join(b"line %d of the output\r\n" % n for n in range(500)))
        await command(pilot, "left_square_bracket")
        await pilot.press("question_mark", *"line 250", "enter", "v", "k")
        for number in range(30):
            resize(pilot, 20 + number * 7 % 100, 6 + number * 5 % 40)
            guest.say(b"more\r\n" * 10)
            await asyncio.sleep(0)
        resize(pilot, 60, 20)
        await until(lambda: guest.size == (60, 17) and guest.unread == 0)
        mode = pane.copy_mode
        assert mode is not None
        await until(lambda: not mode.is_searching)
        assert mode.height == 17
        assert mode.search is not None and mode.search.matches.count == 1
        assert mode.top <= mode.cursor.line < mode.top + mode.height


async def test_what_comes_from_a_guest_after_its_pane_is_gone_is_nothing() -> None:
    service = FakeService()
    async with opened(service, (100, 30)) as (pilot, workspace):
        await command(pilot, "percent_sign")
        await until(lambda: opens(workspace, 2))
        guest = service.terminals[1]
        guest.tell(LinkState.ENDED, "exit status 0")
        await command(pilot, "x")
        await until(lambda: len(workspace.panes) == 1)
        guest.say(b"late\x1b]0;late\x07")
        guest.tell(LinkState.OPEN)
        guest.tell(LinkState.LOST, "late")
        await pilot.pause()
        assert "late" not in screen_text(app_of(pilot))
        await pilot.press("x")
        assert service.terminals[0].typed == b"x"


@each("state", [LinkState.ENDED, LinkState.LOST])
async def test_a_guest_that_dies_in_a_flood(state: LinkState) -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        (guest,) = service.terminals
        guest.say(b"flood\r\n" * 20_000 + b"the last words")
        guest.tell(state, "enter opens a new one")
        guest.say(b"\x1b]0;" + b"x" * 5000)
        await pilot.press("a", "b")
        await until(lambda: "enter opens a new one" in screen_text(app_of(pilot)))
        await until(lambda: "the last words" in screen_text(app_of(pilot)))
        assert guest.typed == b""
        pane.typed = 0.0  # as after a pause
        await pilot.press("enter")
        await until(lambda: len(service.terminals) == 2)
        await until(lambda: opens(workspace, 1))
        await says(pilot, service.terminals[1], b"a new one")
        assert "the last words" not in screen_text(app_of(pilot))
        assert not pane.is_behind


async def test_what_a_program_holds_back_for_ever_is_shown_and_a_title_of_a_megabyte_is_cut() -> (
    None
):
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (guest,) = service.terminals
        guest.say(b"\x1b[?2026hhalf a picture")
        await until(lambda: "half a picture" in screen_text(app_of(pilot)))
        await says(pilot, guest, b"\x1b]2;" + b"A" * 1_000_000 + b"\x07 fine")
        await until(lambda: "fine" in screen_text(app_of(pilot)))
        assert len(workspace.panes[0].terminal.title) <= TITLE_MAX
        await command(pilot, "left_square_bracket")
        assert "copy mode" in screen_text(app_of(pilot)), "the state is before the title"
        assert WEB.name in screen_text(app_of(pilot))


async def test_no_guest_is_told_what_is_on_the_clipboard_or_writes_it_without_the_focus() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (guest,) = service.terminals
        pilot.app.copy_to_clipboard("secret")
        for kind in (b"c", b"p", b"s", b"", b"c0"):
            await says(pilot, guest, b"\x1b]52;" + kind + b";?\x07\x1b]52;" + kind + b";?\x1b\\")
        assert guest.typed == b""
        pilot.app.post_message(events.AppBlur())
        await until(lambda: not workspace.panes[0].has_focus)
        await says(pilot, guest, b"\x1b]52;c;c3RvbGVu\x07")
        assert pilot.app.clipboard == "secret"
        pilot.app.post_message(events.AppFocus())
        await until(lambda: workspace.panes[0].has_focus)
        await says(pilot, guest, b"\x1b]52;c;bWluZQ==\x07")
        assert pilot.app.clipboard == "mine"


@pytest.fixture
def little_garbage() -> Iterator[None]:
    """What other tests left is not looked through meanwhile; the app does likewise."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("line {} and some text\r\n", marks=pytest.mark.soak),
        "漢字 \x1b[31m{}\x1b[m é\r\n",
        "e",
        pytest.param("e1 ", marks=pytest.mark.soak),
    ],
)
async def test_ten_thousand_lines_are_searched_without_blocking(
    line: str, little_garbage: None
) -> None:
    service = FakeService()
    async with opened(service) as (_, workspace):
        (pane,) = workspace.panes
        data = "".join(line.format(n) for n in range(11_000 if "{" in line else 800_000))
        pane.terminal.feed(data.encode())
        assert any(longest_slice(pane) < BLOCKING_MAX_S for _ in range(TRIES))


def longest_slice(pane: Pane) -> float:
    """Seconds of the processor's time at one go when all lines are searched for "e1"."""
    begun = time.thread_time()
    mode = pane.copying.begin()
    slices = [time.thread_time() - begun]
    assert mode.lines.end_line - mode.lines.first_line > 9_000
    for key in "?e1":
        mode.press(key)
        while mode.is_searching:
            begun = time.thread_time()
            mode.search_on(SEARCH_S)
            slices.append(time.thread_time() - begun)
        begun = time.thread_time()
        for y in range(pane.size.height):
            pane.render_line(y)
        slices.append(time.thread_time() - begun)
    pane.copying.leave()
    return max(slices)


async def test_keys_pass_a_search_that_is_not_done() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        pane.terminal.feed(b"".join(b"line %d\r\n" % n for n in range(10_000)))
        await command(pilot, "left_square_bracket")
        await pilot.press("slash", "e", "q", "escape", "q")
        assert pane.copy_mode is None
        await pilot.press("x")
        assert service.terminals[0].typed == b"x"
        assert toasts(app_of(pilot)) == []


async def test_a_new_theme_is_seen_at_once() -> None:
    service = FakeService()
    async with opened(service) as (pilot, workspace):
        (pane,) = workspace.panes
        await says(pilot, service.terminals[0], b"text")

        def colours() -> set[object]:
            return {segment.style and segment.style.bgcolor for segment in pane.render_line(5)}

        before = colours()
        pilot.app.theme = "quicksand-light"
        await until(lambda: colours() != before)


async def test_titles_have_no_colour_where_colours_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    service = FakeService()
    async with opened(service) as (_, workspace):
        (title,) = workspace.render_lines(Region(0, 0, 80, 1))
        for segment in title:
            ground = segment.style.bgcolor if segment.style is not None else None
            assert ground is None or ground.is_default
