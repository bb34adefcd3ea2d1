"""Answers, modes, the cursor's look, damage, and holding back."""

from __future__ import annotations

import subprocess
import sys

from quicksand_vt import CursorShape, MouseEncoding, MouseTracking, Terminal
from quicksand_vt.emulator import HOLD_MAX_S

from tests.each import each
from tests.unit.terminal.cases import make_terminal


class Clock:
    """Goes when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# Answers


def test_a_flood_of_questions_is_answered_in_part() -> None:
    clock = Clock()
    terminal = Terminal(clock=clock)
    terminal.feed(b"\x1b[6n" * 10_000)
    answers = terminal.take_replies()
    assert answers == b"\x1b[1;1R" * (4096 // 6)
    terminal.feed(b"\x1b[6n" * 10_000)
    assert terminal.take_replies() == b""
    clock.now = 0.1
    terminal.feed(b"\x1b[6n" * 10_000)
    assert 1500 < len(terminal.take_replies()) < 1700
    clock.now = 1000.0
    terminal.feed(b"\x1b[6n" * 10_000)
    assert len(terminal.take_replies()) == 4092


def test_answers_that_nobody_takes_do_not_pile_up() -> None:
    clock = Clock()
    terminal = Terminal(clock=clock)
    for _ in range(50):
        clock.now += 10.0
        terminal.feed(b"\x1b[6n" * 1000)
    assert len(terminal.take_replies()) <= 4096


def test_pixels_are_told_only_if_they_are_known() -> None:
    terminal = Terminal(10, 4)
    terminal.feed(b"\x1b[14t\x1b[16t")
    assert terminal.take_replies() == b""
    terminal.resize(10, 4, cell_pixels=(8, 16))
    terminal.feed(b"\x1b[14t\x1b[16t")
    assert terminal.take_replies() == b"\x1b[4;64;80t\x1b[6;16;8t"


# Modes


@each(
    ("data", "expected"),
    [
        (b"\x1b[?1h", {"application_cursor": True}),
        (b"\x1b=", {"application_keypad": True}),
        (b"\x1b=\x1b>", {"application_keypad": False}),
        (b"\x1b[?66h", {"application_keypad": True}),
        (b"\x1b[?67h", {"backspace_sends_bs": True}),
        (b"\x1b[?25l", {"cursor_visible": False}),
        (b"\x1b[?2004h", {"bracketed_paste": True}),
        (b"\x1b[?1004h", {"focus_events": True}),
        (b"\x1b[?1007l", {"alternate_scroll": False}),
        (b"\x1b[?9h", {"mouse_tracking": MouseTracking.X10}),
        (
            b"\x1b[?1000;1006h",
            {"mouse_tracking": MouseTracking.NORMAL, "mouse_encoding": MouseEncoding.SGR},
        ),
        (b"\x1b[?1003h\x1b[?1000l", {"mouse_tracking": MouseTracking.OFF}),
        (b"\x1b[?1006h\x1b[?1005l", {"mouse_encoding": MouseEncoding.SGR}),
        (b"\x1b[?1015h\x1b[?1015l", {"mouse_encoding": MouseEncoding.X10}),
        (b"\x1b[>4;2m", {"modify_other_keys": 2}),
        (b"\x1b[>4;9m", {"modify_other_keys": 2}),
        (b"\x1b[>4;2m\x1b[>4m", {"modify_other_keys": 0}),
        (b"\x1b[>4;2m\x1b[>4n", {"modify_other_keys": 0}),
        (b"\x1b[>4;1f", {"format_other_keys": 1}),
        (b"\x1b[?2004h\x1b[?2004s\x1b[?2004l\x1b[?2004r", {"bracketed_paste": True}),
        (b"\x1b[?2004r", {"bracketed_paste": False}),
        (b"\x1b[?2004h\x1b[!p", {"bracketed_paste": True}),
        (b"\x1b[?1;2004h\x1bc", {"bracketed_paste": False, "application_cursor": False}),
        (b"\x1b[?9999;25l", {"cursor_visible": False}),
    ],
)
def test_modes(data: bytes, expected: dict[str, object]) -> None:
    terminal = make_terminal()
    terminal.feed(data)
    assert {name: getattr(terminal.modes, name) for name in expected} == expected


@each(
    ("number", "shape", "blinks"),
    [
        ("", CursorShape.BLOCK, True),
        ("0", CursorShape.BLOCK, True),
        ("1", CursorShape.BLOCK, True),
        ("2", CursorShape.BLOCK, False),
        ("3", CursorShape.UNDERLINE, True),
        ("4", CursorShape.UNDERLINE, False),
        ("5", CursorShape.BAR, True),
        ("6", CursorShape.BAR, False),
        ("7", CursorShape.BLOCK, True),
    ],
)
def test_the_shape_of_the_cursor(number: str, shape: CursorShape, blinks: bool) -> None:
    terminal = make_terminal()
    terminal.feed(f"\x1b[{number} q".encode())
    assert (terminal.cursor.shape, terminal.cursor.blinks) == (shape, blinks)


def test_the_cursor_can_be_hidden_and_is_on_a_line() -> None:
    terminal = make_terminal()
    terminal.feed(b"\n" * 9 + b"ab\x1b[?25l")
    cursor = terminal.cursor
    assert (cursor.line, cursor.x, cursor.visible) == (9, 2, False)


# Drawing


def test_damage_names_what_changed() -> None:
    terminal = make_terminal(10, 6)
    assert terminal.take_damage().all
    terminal.feed(b"\x1b[2;1Ha\x1b[3;1Hb\x1b[5;1Hc")
    damage = terminal.take_damage()
    assert damage.lines == (range(1, 3), range(4, 5))
    assert not damage.all
    assert terminal.take_damage().lines == ()


def test_scrolling_changes_everything() -> None:
    terminal = make_terminal(10, 3)
    terminal.take_damage()
    terminal.feed(b"\x1b[3;1H\n")
    damage = terminal.take_damage()
    assert (damage.lines, damage.all) == ((range(1, 4),), True)


def test_scrolling_a_region_changes_the_region() -> None:
    terminal = make_terminal(10, 6)
    terminal.take_damage()
    terminal.feed(b"\x1b[2;4r\x1b[4;1H\n")
    damage = terminal.take_damage()
    assert (damage.lines, damage.all) == ((range(1, 4),), False)


def test_moving_the_cursor_changes_no_line() -> None:
    terminal = make_terminal()
    terminal.take_damage()
    terminal.feed(b"\x1b[2;2H\x1b[1m\x1b]2;x\x07\x1b[6n")
    assert terminal.take_damage().lines == ()


def test_a_program_may_hold_drawing_back_but_not_for_long() -> None:
    clock = Clock()
    terminal = Terminal(clock=clock)
    assert terminal.hold_s == 0.0
    terminal.feed(b"\x1b[?2026h")
    assert terminal.hold_s == HOLD_MAX_S
    clock.now = HOLD_MAX_S / 2
    assert 0.0 < terminal.hold_s < HOLD_MAX_S
    clock.now = HOLD_MAX_S * 2
    assert terminal.hold_s == 0.0
    terminal.feed(b"\x1b[?2026h\x1b[?2026l")
    assert terminal.hold_s == 0.0


def test_who_holds_back_again_and_again_gains_nothing() -> None:
    clock = Clock()
    terminal = Terminal(clock=clock)
    for _ in range(20):
        terminal.feed(b"\x1b[?2026l\x1b[?2026h")
        clock.now += HOLD_MAX_S / 10
    assert terminal.hold_s == 0.0
    terminal.take_damage()
    terminal.feed(b"\x1b[?2026l\x1b[?2026h")
    assert terminal.hold_s == HOLD_MAX_S


# The package


def test_no_ui_is_imported() -> None:
    code = "import quicksand_vt, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.decode().split()}
    assert not loaded & {"textual", "rich", "asyncio", "quicksand"}
