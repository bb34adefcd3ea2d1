"""Whatever comes in: nothing raises, everything stays sound and bounded, and it makes no difference
where the input was cut."""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_vt import Attribute, Terminal

from tests.conftest import examples
from tests.unit.terminal.cases import make_terminal, screen_rows
from tests.unit.terminal.hostile import OUTPUT, SIZES
from tests.unit.terminal.soundness import check_sound, picture


@settings(max_examples=examples(400))
@given(size=SIZES, data=OUTPUT)
def test_any_output_leaves_a_sound_terminal(size: tuple[int, int], data: bytes) -> None:
    terminal = make_terminal(*size, scrollback=5)
    terminal.feed(data)
    check_sound(terminal)


@settings(max_examples=examples(400))
@given(size=SIZES, data=OUTPUT, cuts=st.lists(st.integers(0, 400), max_size=6))
def test_it_makes_no_difference_where_output_is_cut(
    size: tuple[int, int], data: bytes, cuts: list[int]
) -> None:
    whole, cut, single = (make_terminal(*size, scrollback=5) for _ in range(3))
    whole.feed(data)
    places = [0, *sorted(min(place, len(data)) for place in cuts), len(data)]
    for start, end in itertools.pairwise(places):
        cut.feed(data[start:end])
    for byte in data:
        single.feed(bytes((byte,)))
    expected = picture(whole)
    assert picture(cut) == expected
    assert picture(single) == expected


@settings(max_examples=examples(300))
@given(steps=st.lists(st.one_of(OUTPUT, SIZES), max_size=8))
def test_sizes_may_change_at_any_time(steps: list[bytes | tuple[int, int]]) -> None:
    terminal = make_terminal(8, 4, scrollback=20)
    for step in steps:
        if isinstance(step, bytes):
            terminal.feed(step)
        else:
            terminal.resize(*step)
        check_sound(terminal)


@settings(max_examples=examples(200))
@given(size=SIZES, data=st.lists(OUTPUT, max_size=3))
def test_damage_names_every_line_that_changed(size: tuple[int, int], data: list[bytes]) -> None:
    terminal = make_terminal(*size, scrollback=5)
    terminal.take_damage()
    for piece in data:
        numbers = range(terminal.screen_line, terminal.end_line)
        before = [terminal.line(number) for number in numbers]
        terminal.feed(piece)
        damage = terminal.take_damage()
        told = {number for lines in damage.lines for number in lines}
        shown = range(terminal.screen_line, terminal.end_line)
        after = [terminal.line(number) for number in shown]
        changed = {shown[y] for y in range(len(after)) if after[y] != before[y]}
        assert changed <= told <= set(shown)
        assert not damage.all or told == set(shown)
        assert terminal.take_damage().lines == ()


FLOODS = {
    "titles": b"\x1b]0;" + b"t" * 2000 + b"\x07",
    "clipboards": b"\x1b]52;c;" + b"QUFB" * 500 + b"\x07",
    "notifications": b"\x1b]9;" + b"n" * 2000 + b"\x07",
    "questions": b"\x1b[c\x1b[6n\x1b[>q\x1b]11;?\x07" * 50,
    "sixels": b"\x1bPq" + b"#0~~" * 500 + b"\x1b\\",
    "numbers": b"\x1b[" + b"1;" * 1000 + b"m",
    "a number": b"\x1b[" + b"9" * 2000,
    "repeats": b"x\x1b[999999999b" * 3,
    "scrolling": b"\x1b[999999999S\x1b[999999999T\x1b[999999999L" * 3,
    "scrolling between margins": b"\x1b[?69h\x1b[2;9s\x1b[4;3H" + b"xyz\r\n\x1b[L\x1b[S" * 50,
    "rectangles": b"\x1b[35$x\x1b[;;;;;2;2$v\x1b[;;;;1;7$r\x1b[$t\x1b[$z" * 30,
    "protected cells": b'\x1b[1"qa\x1b[0"qb\x1b[?2J\x1b[?2K\x1b[${' * 50,
    "saved titles": b"\x1b[22t" * 500,
    "saved modes": b"\x1b[?1;7;25;1000;1049s" * 100,
    "the alternate screen": b"\x1b[?1049h\x1b[?1049l" * 100,
    "marks on one character": b"e" + "\u0301".encode() * 1000,
    "marks on every character": ("e" + "\u0301" * 4).encode() * 200,
    "joiners": ("\U0001f469" + "\u200d" * 20).encode() * 30,
    "bells": b"\x07" * 2000,
    "escapes": b"\x1b" * 2000,
    "escapes with intermediates": b"\x1b((((((((" * 200,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_takes_no_more_memory_as_it_goes_on(name: str) -> None:
    terminal = make_terminal(40, 4, scrollback=4)
    data = FLOODS[name]
    once = [data] * (15_000 // len(data) + 1)
    # What was there at first is given back only if it was counted.
    grown = memory_of(terminal, once * 5, after=once)
    assert grown < 20_000, f"{grown} bytes"
    check_sound(terminal)


def memory_of(terminal: Terminal, output: Iterable[bytes], after: Iterable[bytes] = ()) -> int:
    """Bytes that are taken by what comes in, and not given back; ``after`` comes before it."""
    tracemalloc.start()
    try:
        for data in after:
            terminal.feed(data)
        begin = tracemalloc.get_traced_memory()[0]
        for data in output:
            terminal.feed(data)
        return tracemalloc.get_traced_memory()[0] - begin
    finally:
        tracemalloc.stop()


def test_what_looks_at_each_cell_is_bounded() -> None:
    now = 0.0
    terminal = Terminal(200, 50, clock=lambda: now)
    terminal.feed(b'\x1b[1"q' + b"x" * 10_000 + b"\x1b[31$x\x1b[?2J" * 500)
    terminal.feed(b"\x1b[1;1;1;9;1$r")
    assert not terminal.line(terminal.screen_line)[0].style.attributes & Attribute.BOLD
    now = 1.0
    terminal.feed(b"\x1b[1;1;1;9;1$r")
    assert terminal.line(terminal.screen_line)[0].style.attributes & Attribute.BOLD


@pytest.mark.parametrize("begin", [b"\x1b]0;", b"\x1bP", b"\x1b_", b"\x1b["])
def test_what_never_ends_is_bounded(begin: bytes) -> None:
    terminal = make_terminal()
    terminal.feed(begin)
    grown = memory_of(terminal, (b"1" * 65536 for _ in range(50)))
    assert grown < 1_500_000, f"{grown} bytes"
    terminal.feed(b"\x18\x1bcx")
    assert screen_rows(terminal) == ("x",)


INVENTIONS: dict[str, Callable[[int], str]] = {
    "colours": lambda n: f"\x1b[38;2;{n & 255};{n >> 8};0mx",
    "parameters": lambda n: f"\x1b[38;2;{n & 255};{n >> 8};0;{n}m\x1b[Kx",
    "links": lambda n: f"\x1b]8;;https://example.org/{n:0500d}\x07x",
    "directories": lambda n: f"\x1b]7;file:///{n:0500d}\x07x",
    "palettes": lambda n: f"\x1b]4;{n};#{n:06x}\x07x",
    "modes": lambda n: f"\x1b[?{n}s\x1b[?{n}hx",
    "characters": lambda n: chr(0x10000 + n * 16),
}


@pytest.mark.parametrize("name", INVENTIONS)
def test_inventions_are_not_remembered_for_ever(name: str) -> None:
    terminal = make_terminal(40, 10, scrollback=50)
    invent = INVENTIONS[name]
    grown = memory_of(terminal, (invent(n).encode() for n in range(9_000)))
    assert grown < 2_500_000, f"{grown} bytes"
    check_sound(terminal)


def test_lines_that_cost_much_are_fewer() -> None:
    terminal = make_terminal(100, 10, scrollback=1000)
    line = "".join(f"\x1b[38;2;{n};0;0m\U0001f469\u200d\U0001f4bb" for n in range(50))
    for _ in range(1100):
        terminal.feed(line.encode() + b"\r\n")
    kept = terminal.screen_line - terminal.first_line
    texts, attributes = terminal._screen.scrollback.freeze()
    size = sum(map(sys.getsizeof, [*texts, *attributes]))
    assert 300 < kept < 1000
    assert size < 1000 * 1200


def test_the_end_of_a_flood_is_there() -> None:
    terminal = make_terminal()
    for flood_ in FLOODS.values():
        terminal.feed(flood_ * 3 + b"\x18\x1bc")
    terminal.feed(b"still here")
    assert screen_rows(terminal) == ("still here",)
