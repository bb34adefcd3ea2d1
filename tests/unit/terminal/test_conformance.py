"""What xterm does, case by case. Each case is fed whole, byte by byte, and in a terminal that was
used and reset before."""

from __future__ import annotations

from quicksand_vt import Terminal

from tests.each import each
from tests.unit.terminal import (
    cases_cursor,
    cases_editing,
    cases_margins,
    cases_parsing,
    cases_unicode,
)
from tests.unit.terminal.cases import Case, cursor_of, make_terminal, screen_rows

CASES = [
    *cases_cursor.CASES,
    *cases_editing.CASES,
    *cases_margins.CASES,
    *cases_parsing.CASES,
    *cases_unicode.CASES,
]


def check(case: Case, terminal: Terminal) -> None:
    if case.rows is not None:
        assert screen_rows(terminal) == case.rows
    if case.cursor is not None:
        assert cursor_of(terminal) == case.cursor
    assert terminal.take_replies() == case.replies


@each("case", CASES, ids=str)
def test_whole(case: Case) -> None:
    terminal = make_terminal(*case.size)
    terminal.feed(case.data)
    check(case, terminal)


@each("case", [case for case in CASES if len(case.data) < 20_000], ids=str)
def test_byte_by_byte(case: Case) -> None:
    terminal = make_terminal(*case.size)
    for byte in case.data:
        terminal.feed(bytes((byte,)))
    check(case, terminal)


@each("case", CASES, ids=str)
def test_after_a_reset(case: Case) -> None:
    terminal = make_terminal(*case.size)
    terminal.feed("\x1b[2;3r\x1b[?6h\x1b[?7l\x1b[4h\x1b(0\x1b[3g\x1b[7;41mx你e\u0301\x1b7".encode())
    terminal.feed(b"\x1b[?69;45;1045;40;41h\x1b[2;5s\x1bV\x1b[2*x\x1b]5;0;#123\x07")
    terminal.feed(b"\x1b[?1049h\x1b[?1;25l\x1b[>4;2m\x1b[?1003;1006h\x1b[20hx\x1bc")
    terminal.feed(case.data)
    check(case, terminal)


def test_there_are_enough_and_each_has_its_name() -> None:
    assert len({case.name for case in CASES}) == len(CASES) > 150
