"""Patterns mean what [MS-FSA] 2.1.4.4 says, and none is slow."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st
from quicksand_smb import patterns

from tests.each import each


def matches(pattern: str, name: str) -> bool:
    match = patterns.matcher(pattern)
    return match is None or match(name)


def slow(pattern: str, name: str, last: int | None = None, at: int = 0) -> bool:
    """The same by trying, one rule for each wildcard."""
    last = name.rfind(".") if last is None else last
    if not pattern:
        return at == len(name)
    first, rest = pattern[0], pattern[1:]
    here = name[at : at + 1]

    def go(pattern: str, steps: int) -> bool:
        return slow(pattern, name, last, at + steps)

    if first == "*":
        return go(rest, 0) or (bool(here) and go(pattern, 1))
    if first == "<":
        on = rest if at == last else pattern
        return go(rest, 0) or (bool(here) and go(on, 1))
    if first == ">":
        return go(rest, 0) if here in ("", ".") else go(rest, 1)
    if first == '"':
        return go(rest, 0) if not here else here == "." and go(rest, 1)
    return bool(here) and (first in ("?", here)) and go(rest, 1)


@given(st.text('ab.*?<>"', max_size=7), st.text("ab.", min_size=1, max_size=7))
def test_the_automaton_agrees_with_the_rules(pattern: str, name: str) -> None:
    assert matches(pattern or "*", name) == slow(pattern or "*", name)


@each(
    ("pattern", "name", "expected"),
    [
        ("*", "anything", True),
        ("", "anything", True),
        ("*.txt", "a.txt", True),
        ("*.txt", ".txt", True),
        ("*.txt", "a.TXT", False),
        ("ab*ba", "aba", False),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("<.txt", "a.b.txt", True),
        ("<", "a.b", False),
        ("<b", "a.b", True),
        ("a>>", "a", True),
        ("a>>.b", "axy.b", True),
        ("a>>.b", "axyz.b", False),
        ('a"', "a", True),
        ('a"', "a.", True),
        ('a"b', "ab", False),
        ("*" * 300 + "a", "bba", True),
        ("x" * 600, "x" * 255, False),
    ],
)
def test_known_answers(pattern: str, name: str, expected: bool) -> None:
    assert matches(pattern, name) is expected


@each("bomb", ["*?" * 120 + "b", "*a" * 120 + "b", "<>" * 120 + "b", ">" * 255])
def test_no_pattern_is_slow(bomb: str) -> None:
    match = patterns.matcher(bomb)
    assert match is not None

    def cost(name: str) -> float:
        begin = time.thread_time()
        match(name)
        return time.thread_time() - begin

    for name in ("a" * 255, "." * 255, "a." * 127):
        # By trying, it would not end before the sun does. A collection of garbage may fall into
        # one attempt.
        assert any(cost(name) < 0.05 for _ in range(3))
