"""Answers of terminals told from keys, cut anywhere; and what they mean."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_driver.terminal_queries import (
    CUT_WAIT_S,
    KEY_WAIT_S,
    UNKNOWN,
    ReplyReader,
    TerminalAbilities,
    questions,
)

from tests.each import each
from tests.pty_terminal import WHOLE

KEYS = (
    b"q",
    b"\r",
    b"\x1b[A",
    b"\x1bOP",
    b"\x1b[20~",
    b"\x1b[6;5~",
    b"\x1b[97;5u",
    b"\x1bb",
    b"\x1b[I",
    b"\x1b[<0;12;7M",
    b"\x1b[M !!",
    b"\x1b[3;4R",
    b"\x1b[48;36;120;720;1200t",
    b"\x1b[200~pasted \x1b[?62;4c\x1b]11;rgb:0/0/0\x07 text\x1b[201~",
    "ä€😀".encode(),
)
ANSWERS = (
    b"\x1b[?62;4;22c",
    b"\x1b[>41;388;0c",
    b"\x1b[?0u",
    b"\x1b[6;20;10t",
    b"\x1b]11;rgb:1111/2222/3333\x1b\\",
    b"\x1b]10;rgb:11/22/33\x07",
    b"\x1bP>|xterm(388)\x1b\\",
    b"\x1b_Gi=31;OK\x1b\\",
    b"\x1b_Gi=31;EINVAL:no such thing\x1b\\",
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def read(reader: ReplyReader, *pieces: bytes) -> bytes:
    return b"".join(map(reader.feed, pieces))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


@given(
    st.lists(st.one_of(st.sampled_from(KEYS), st.sampled_from(ANSWERS)), max_size=12),
    st.lists(st.integers(0, 1000), max_size=12),
    st.booleans(),
)
def test_keys_go_on_and_answers_do_not_wherever_they_are_cut(
    pieces: list[bytes], places: list[int], mode: bool
) -> None:
    pieces = [*pieces, b"."]
    reader = ReplyReader(expects=True)
    if mode:
        pieces.insert(0, b"\x1b[?2026;2$y")
    kept = read(reader, *cut(b"".join(pieces), places))
    assert kept == b"".join(piece for piece in pieces if piece not in ANSWERS)
    assert reader.abilities.sync_output is mode


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_nothing_raises_and_text_is_never_lost(data: bytes, places: list[int]) -> None:
    clock = Clock()
    reader = ReplyReader(expects=True, clock=clock)
    kept = read(reader, *cut(data, places))
    clock.now += 2 * CUT_WAIT_S
    kept += reader.tick()
    if b"\x1b" not in data:
        assert kept == data
    assert not reader.waits


def test_a_whole_set_of_answers() -> None:
    reader = ReplyReader(expects=True)
    kept = read(reader, *WHOLE.values())
    assert kept == WHOLE[rb"\x1b\[\?2026\$p"] + WHOLE[rb"\x1b\[\?2048\$p"], "Textual wants these"
    assert reader.answered
    assert reader.abilities == TerminalAbilities(
        name="kitty(0.40.0)",
        background=(255, 254, 240),
        sync_output=True,
        graphics="kitty",
        cell_size=(10, 20),
        kitty_keyboard=True,
    )
    assert reader.abilities.is_light is True


@each(
    ("answers", "expected"),
    [
        (b"\x1b[?62;22c", UNKNOWN),
        (b"\x1b[?4c", UNKNOWN),
        (b"\x1b[?64;1;4;9c", TerminalAbilities(graphics="sixel")),
        (b"\x1b_Gi=31;OK\x1b\\\x1b[?62;4c", TerminalAbilities(graphics="kitty")),
        (b"\x1b_Gi=31;ENODATA:x\x1b\\", UNKNOWN),
        (b"\x1bP>|ghostty 1.2\x1b\\", TerminalAbilities(name="ghostty 1.2", graphics="kitty")),
        (b"\x1bP>|\xff\xe2\x80\xae bad\x1b\\", TerminalAbilities(name="�� bad")),
        (b"\x1bP>|" + b"x" * 99 + b"\x1b\\", TerminalAbilities(name="x" * 59 + "…")),
        (b"\x1b[?2026;0$y", UNKNOWN),
        (b"\x1b[?2026;4$y", UNKNOWN),
        (b"\x1b[6;0;0t", UNKNOWN),
        (b"\x1b]11;rgb:f/80/0000\x07", TerminalAbilities(background=(255, 128, 0))),
        (b"\x1b]11;rgba:ffff/ffff/ffff/8000\x07", TerminalAbilities(background=(255, 255, 255))),
        (b"\x1b]11;blue\x07", UNKNOWN),
    ],
)
def test_what_answers_mean(answers: bytes, expected: TerminalAbilities) -> None:
    reader = ReplyReader(expects=True)
    assert reader.feed(answers).startswith((b"", b"\x1b[?2026"))
    assert reader.abilities == expected


def test_escape_alone_is_a_key_after_a_moment() -> None:
    clock = Clock()
    reader = ReplyReader(expects=True, clock=clock)
    assert reader.feed(b"\x1b") == b""
    assert reader.tick() == b""
    clock.now = KEY_WAIT_S
    assert reader.tick() == b"\x1b"
    reader.stop_expecting()
    assert reader.feed(b"\x1b") == b"\x1b", "Textual has waits of its own"


def test_a_cut_answer_is_waited_for_and_never_typed() -> None:
    clock = Clock()
    reader = ReplyReader(expects=False, clock=clock)
    assert reader.feed(b"a\x1b]11;rgb:ffff/ff") == b"a"
    clock.now = CUT_WAIT_S - 0.1
    assert reader.tick() == b"" and reader.waits
    assert reader.feed(b"ff/ffff\x1b\\b") == b"b"
    assert reader.abilities.is_light
    assert reader.feed(b"\x1bP>|half") == b""
    clock.now += CUT_WAIT_S
    assert reader.tick() == b"" and not reader.waits


@each(
    ("environ", "asked", "not_asked"),
    [
        ({"TERM": "xterm-256color"}, b"\x1b_G", b"\x1b[6n"),
        ({"TERM": "xterm-256color", "TMUX": "/tmp/x,1,0"}, b"\x1b[16t", b"\x1b_G"),
        ({"TERM": "screen-256color"}, b"\x1b[16t", b"\x1b_G"),
        ({"TERM": "xterm-kitty", "SSH_TTY": "/dev/pts/1"}, b"\x1b]11;?", b"\x1b_G"),
        ({"TERM": "xterm", "TERM_PROGRAM": "Apple_Terminal"}, b"\x1b]11;?", b"$p"),
    ],
)
def test_terminals_are_asked_only_what_they_do_not_print(
    environ: dict[str, str], asked: bytes, not_asked: bytes
) -> None:
    said = questions(environ)
    assert asked in said and not_asked not in said
    assert said.endswith(b"\x1b[c"), "the last answer is the fence"


@each(
    "environ",
    [{"TERM": "linux"}, {"TERM": "dumb"}, {}, {"TERM": "xterm", "QUICKSAND_PROBE": "off"}],
)
def test_some_are_not_asked_at_all(environ: dict[str, str]) -> None:
    assert questions(environ) == b""


def test_abilities_are_read_back() -> None:
    known = TerminalAbilities(
        name="kitty", background=(1, 2, 3), graphics="kitty", cell_size=(9, 18), sync_output=True
    )
    value = {**known.to_json(), "background": [1, 2, 3], "cell_size": [9, 18]}
    assert TerminalAbilities.from_json(value) == known
    assert TerminalAbilities.from_json({}) == UNKNOWN


@each(
    "value", [None, [], {"background": [1, 2]}, {"background": [1, 2, 256]}, {"cell_size": "9x18"}]
)
def test_what_is_no_record_of_abilities_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not"):
        TerminalAbilities.from_json(value)
