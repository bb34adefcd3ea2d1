"""What is written with fewer bytes is drawn the same."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.kit.slim import slim
from quicksand_tui.terminal import Terminal

STYLES = (
    "38;2;1;2;3;48;2;4;5;6",
    "38;2;9;9;9;48;2;4;5;6",
    "1;38;2;1;2;3;48;2;4;5;6",
    "1;38;2;1;2;3",
    "48;5;17",
    "31;42",
    "91;107",
    "39;49",
    "2;3;4;7;9",
    "7",
    "",
)
TEXTS = (
    "a",
    "word ",
    "ä漢",
    " ",
    "\r\n",
    "\x1b[2;3H",
    "\x1b[?25l",
    "\x1b]8;id=1;http://x\x1b\\",
    "",
)


def drawn(text: str) -> list[object]:
    terminal = Terminal(30, 8)
    terminal.feed(text.encode())
    return [terminal.line(line) for line in range(terminal.screen_line, terminal.end_line)]


def as_textual(runs: list[tuple[str, str]]) -> str:
    return "".join(f"\x1b[{style}m{text}\x1b[0m" if style else text for style, text in runs)


@given(st.lists(st.tuples(st.sampled_from(STYLES), st.sampled_from(TEXTS)), max_size=20))
def test_it_is_drawn_the_same(runs: list[tuple[str, str]]) -> None:
    text = as_textual(runs)
    slimmed = slim(text)
    assert drawn(slimmed + "x") == drawn(text + "x")
    assert len(slimmed) <= len(text)


@given(st.text(alphabet="\x1b[]m;0123456789 ahHJ\r\n", max_size=60))
def test_anything_else_is_drawn_the_same_too(text: str) -> None:
    assert drawn(slim(text)) == drawn(text)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([("31", "a"), ("31", "b")], "\x1b[31mab\x1b[0m"),
        ([("31;42", "a"), ("33;42", "b")], "\x1b[31;42ma\x1b[33mb\x1b[0m"),
        ([("1;31", "a"), ("31", "b")], "\x1b[1;31ma\x1b[0;31mb\x1b[0m"),
        ([("31", "a"), ("", "\r\n"), ("31", "b")], "\x1b[31ma\x1b[0m\r\n\x1b[31mb\x1b[0m"),
        ([("31;42", "a"), ("31", "b")], "\x1b[31;42ma\x1b[0;31mb\x1b[0m"),
    ],
)
def test_only_changes_are_written(runs: list[tuple[str, str]], expected: str) -> None:
    assert slim(as_textual(runs)) == expected
