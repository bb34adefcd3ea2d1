"""Kitty's keyboard protocol: programs get keys in the form that they have asked for, whatever form
the user's terminal sends them in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quicksand_vt.emulator import Terminal
from quicksand_vt.keyboard import STACK_MAX

from tests.each import each

PLAIN = {
    "Escape": (b"\x1b[27u", b"\x1b"),
    "Ctrl+C": (b"\x1b[99;5u", b"\x03"),
    "Ctrl+Space": (b"\x1b[32;5u", b"\x00"),
    "Ctrl+J": (b"\x1b[106;5u", b"\n"),
    "Ctrl+\\": (b"\x1b[92;5u", b"\x1c"),
    "Alt+x": (b"\x1b[120;3u", b"\x1bx"),
    "Alt+é": (b"\x1b[233;3u", "\x1bé".encode()),
    "Alt+X": (b"\x1b[120:88;4u", b"\x1bX"),
    "Alt+Ctrl+C": (b"\x1b[99;7u", b"\x1b\x03"),
    "Alt+Enter": (b"\x1b[13;3u", b"\x1b\r"),
    "Alt+Backspace": (b"\x1b[127;3u", b"\x1b\x7f"),
    "Shift+Tab": (b"\x1b[9;2u", b"\x1b[Z"),
    "text": (b"ls -l\r\t\x7f", b"ls -l\r\t\x7f"),
    "more text": ("žluť 漢".encode(), "žluť 漢".encode()),
    "arrows": (b"\x1b[A\x1b[1;5D\x1b[15~", b"\x1b[A\x1b[1;5D\x1b[15~"),
}
"""Keys in the protocol's form, with flags 1 and 4, and as they are otherwise."""

ONLY_TOLD = {
    "Ctrl+I": (b"\x1b[105;5u", b"\t"),
    "Ctrl+M": (b"\x1b[109;5u", b"\r"),
    "Shift+Enter": (b"\x1b[13;2u", b"\r"),
    "Ctrl+Shift+A": (b"\x1b[97:65;6u", b"\x01"),
    "Ctrl+Backspace": (b"\x1b[127;5u", b"\x08"),
    "Alt+!": (b"\x1b[49:33;4u", b"\x1b!"),
    "with Num Lock": (b"\x1b[99;133u", b"\x03"),
    "the keypad's left": (b"\x1b[57417u", b"\x1b[D"),
    "the keypad's Enter": (b"\x1b[57414u", b"\r"),
    "Super+A": (b"\x1b[97;9u", b""),
    "a key without a character": (b"\x1b[57358u", b""),
    "a release": (b"\x1b[99;5:3u", b""),
    "a character told": (b"\x1b[97;;97u", b"a"),
}
"""Keys that only a terminal with the protocol tells apart."""


def terminal(asked: bytes = b"") -> Terminal:
    made = Terminal(20, 4)
    made.feed(asked)
    return made


@each("name", PLAIN)
def test_a_program_that_asks_gets_the_form_from_any_terminal(name: str) -> None:
    told, plain = PLAIN[name]
    asking = terminal(b"\x1b[>5u")
    assert asking.encode_keys(told) == told
    assert asking.encode_keys(plain) == told


@each("name", [*PLAIN, *ONLY_TOLD])
def test_a_program_that_asks_for_nothing_gets_what_it_always_got(name: str) -> None:
    told, plain = (PLAIN | ONLY_TOLD)[name]
    assert terminal().encode_keys(told) == plain
    assert terminal().encode_keys(plain) == plain


@each(
    ("data", "expected"),
    [
        (b"\x1b[105;5u", b"\x1b[105;5u"),
        (b"\x1b[97:65;6u", b"\x1b[97;6u"),
        (b"\x1b[99;133u", b"\x1b[99;5u"),
        (b"\x1b[99;5:3u", b""),
        (b"\x1b[97;;97u", b"a"),
        (b"\x1b[97:65;2u", b"A"),
        (b"\x1b[13u", b"\r"),
        (b"\x08\x1e\x1f", b"\x08\x1e\x1f"),
    ],
)
def test_a_program_gets_no_more_than_it_asked_for(data: bytes, expected: bytes) -> None:
    assert terminal(b"\x1b[=1u").encode_keys(data) == expected


def test_cursor_keys_of_the_application_are_plain_for_who_uses_the_protocol() -> None:
    made = terminal(b"\x1b[?1h")
    assert made.encode_keys(b"\x1b[A\x1b[57419u") == b"\x1bOA\x1bOA"
    made.feed(b"\x1b[>1u")
    assert made.encode_keys(b"\x1b[A") == b"\x1b[A"


def flags(made: Terminal) -> int:
    made.feed(b"\x1b[?u")
    answer = made.take_replies()
    assert answer.startswith(b"\x1b[?")
    return int(answer[3:-1])


def test_each_screen_has_a_stack_of_what_was_asked_for() -> None:
    made = terminal(b"\x1b[>1u")
    made.feed(b"\x1b[?1049h")
    assert flags(made) == 0
    made.feed(b"\x1b[>5u\x1b[>1u")
    assert flags(made) == 1
    made.feed(b"\x1b[<u")
    assert flags(made) == 5
    made.feed(b"\x1b[?1049l")
    assert flags(made) == 1
    made.feed(b"\x1b[<9u")
    assert flags(made) == 0
    made.feed(b"\x1b[>5u\x1bc")
    assert flags(made) == 0


def test_flags_are_set_added_and_removed_and_only_those_that_are_honoured_are_told() -> None:
    made = terminal()
    for asked, expected in ((b"=1u", 1), (b"=4;2u", 5), (b"=1;3u", 4), (b"=31u", 5), (b"=0u", 0)):
        made.feed(b"\x1b[" + asked)
        assert flags(made) == expected
    made.feed(b"\x1b[>31u")
    assert flags(made) == 5


def test_a_program_that_asks_without_end_takes_no_memory() -> None:
    made = terminal(b"\x1b[>1u" * 10_000)
    made.feed(b"\x1b[<u" * STACK_MAX)
    assert flags(made) == 0


@given(st.binary(max_size=40), st.sampled_from([b"", b"\x1b[>1u", b"\x1b[>5u\x1b[?1h"]))
def test_no_keys_are_lost_nor_raise(data: bytes, asked: bytes) -> None:
    encoded = terminal(asked).encode_keys(data)
    if b"\x1b[" not in data:
        assert terminal().encode_keys(data) == data
        assert bool(encoded) == bool(data)
