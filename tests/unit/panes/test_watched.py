"""A terminal that is only watched."""

from __future__ import annotations

import random
from unicodedata import category

import pytest
from rich.style import Style

from quicksand_tui.model.wall_plan import Wants
from quicksand_tui.panes.watched import COLUMNS_MAX, PENDING_MAX, QUIET_S, REST, WatchedScreen
from tests.each import each

BASE = Style()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def screen(clock: Clock) -> WatchedScreen:
    return WatchedScreen(80, 24, clock=clock)


def digest(screen: WatchedScreen) -> None:
    while screen.is_behind:
        screen.digest()


def say(screen: WatchedScreen, data: bytes) -> None:
    screen.take(data)
    digest(screen)


def wants(screen: WatchedScreen) -> Wants:
    return screen.wants


def texts(screen: WatchedScreen, width: int = 30, height: int = 5) -> list[str]:
    return [strip.text.rstrip() for strip in screen.strips(width, height, BASE)]


def test_it_shows_the_last_lines_at_the_width_of_its_tile(screen: WatchedScreen) -> None:
    say(screen, b"".join(b"line %d %s\r\n" % (n, b"x" * 60) for n in range(40)) + b"$ ")
    assert texts(screen) == [*(f"line {n} {'x' * 22}" for n in range(36, 40)), "$"]


def test_pictures_are_left_out_and_named_by_nothing(screen: WatchedScreen) -> None:
    say(screen, b"\x1bPq#1!20~\x1b\\a\x1b_Ga=T,f=24,s=1,v=1;AAAA\x1b\\b" + "\U0010eeeec".encode())
    assert texts(screen) == ["ab\ufffdc", "", "", "", ""]
    screen.take(b"!20~-!20~\x1b\\prompt", skipped=True)
    digest(screen)
    assert screen.take_changed()
    assert texts(screen)[0] == "ab\ufffdcprompt"


def test_a_question_calls_once_it_is_silent_and_not_when_it_was_seen(
    screen: WatchedScreen, clock: Clock
) -> None:
    say(screen, b"Apply this edit? [y/n] ")
    assert wants(screen) is Wants.NOTHING
    clock.now += QUIET_S
    assert wants(screen) is Wants.ANSWER
    screen.seen()
    assert wants(screen) is Wants.NOTHING
    say(screen, b"n\r\nApply that edit? [y/n] ")
    clock.now += QUIET_S
    assert wants(screen) is Wants.ANSWER


def test_a_bell_and_the_end_of_a_command_call_until_they_are_seen(screen: WatchedScreen) -> None:
    say(screen, b"\x1b]133;D;3\x07")
    assert (wants(screen), screen.status) == (Wants.END, 3)
    say(screen, b"\a")
    assert wants(screen) is Wants.BELL
    screen.seen()
    assert wants(screen) is Wants.NOTHING


def test_what_was_written_before_the_look_calls_nobody(screen: WatchedScreen, clock: Clock) -> None:
    screen.take(b"\aold\x1b]133;D;1\x07", replayed=True)
    screen.take(b" new")
    digest(screen)
    assert (wants(screen), screen.heard) == (Wants.NOTHING, clock.now)
    assert texts(screen)[0] == "old new"


def test_it_answers_no_query(screen: WatchedScreen) -> None:
    say(screen, b"\x1b[c\x1b[6n\x1b]11;?\x07")
    assert screen._terminal.take_replies() == b""


def test_of_a_flood_only_the_end_is_parsed(screen: WatchedScreen) -> None:
    screen.take(b"\x1b]0;never ended" + b"y\r\n" * PENDING_MAX + b"last\r\n")
    assert len(screen._pending) <= REST + 1
    digest(screen)
    assert texts(screen)[-2] == "last"


def test_a_flood_in_the_middle_of_a_sequence_leaves_no_half_of_it(screen: WatchedScreen) -> None:
    say(screen, b"\x1b]0;a title without an end")
    screen.take(b"shown\r\n", skipped=True)
    digest(screen)
    assert texts(screen)[0] == "shown"


def test_a_guest_cannot_name_a_size_that_takes_the_hosts_memory() -> None:
    assert WatchedScreen(10**6, 10**6).size[0] == COLUMNS_MAX
    screen = WatchedScreen(-1, 0)
    screen.resize(0, -5)
    assert screen.size == (2, 1)


def test_a_program_that_draws_the_whole_screen_shows_its_upper_left_part(
    screen: WatchedScreen,
) -> None:
    say(
        screen,
        b"\x1b[?1049h\x1b[?25l" + b"".join(b"\x1b[%d;1Hrow %d" % (n, n) for n in range(1, 25)),
    )
    assert texts(screen) == [f"row {n}" for n in range(1, 6)]


def test_an_editor_shows_its_top_wherever_the_cursor_is(screen: WatchedScreen) -> None:
    rows = b"".join(b"\x1b[%d;1Hrow %d" % (n, n) for n in range(1, 25))
    say(screen, b"\x1b[?1049h" + rows + b"\x1b[2;1H")
    assert texts(screen) == [f"row {n}" for n in range(1, 6)]
    say(screen, b"\x1b[10;1H")
    assert texts(screen) == [f"row {n}" for n in range(1, 6)]


@each("seed", range(6))
def test_whatever_a_guest_writes_each_line_has_exactly_the_width_of_the_tile(seed: int) -> None:
    chance = random.Random(seed)
    parts = [
        b"\x1b[",
        b"\x1b]",
        b"\x9b",
        b"\xe6\xbc\xa2",
        "👨‍👩‍👧".encode(),
        b"\xcc\x81",
        b"\r\n",
        b"\t",
        b"\x08",
    ]
    screen = WatchedScreen(chance.choice([2, 40, 80, 300]), chance.choice([1, 5, 24, 60]))
    for _ in range(300):
        noise = chance.randbytes(chance.randint(1, 30))
        say(screen, b"".join(chance.choice([*parts, noise]) for _ in range(8)))
        width, height = chance.randint(1, 60), chance.randint(1, 12)
        strips = screen.strips(width, height, BASE)
        assert len(strips) == height
        for strip in strips:
            assert sum(segment.cell_length for segment in strip) == strip.cell_length == width
            assert all(c.isprintable() or category(c) == "Co" for c in strip.text)


def test_a_replay_is_shown_when_all_of_it_is_parsed(screen: WatchedScreen) -> None:
    screen.take_changed()
    screen.take(b"old\r\n" * 1000 + b"\x1b[2J\x1b[Hnow", replayed=True)
    screen.digest()
    assert screen.is_behind and not screen.take_changed()
    while screen.is_behind:
        screen.digest()
    assert screen.take_changed() and texts(screen)[0] == "now"
