"""Searching, selecting and moving in what is shown and was shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_vt import (
    Matches,
    Motion,
    Position,
    Span,
    Terminal,
    block_text,
    line_at,
    move,
    search,
    search_pattern,
    selected_text,
    word_at,
)

from tests.conftest import examples
from tests.each import each
from tests.unit.terminal.cases import make_terminal
from tests.unit.terminal.hostile import OUTPUT, SIZES


def shown(text: str, columns: int = 10, rows: int = 4) -> Terminal:
    terminal = make_terminal(columns, rows)
    terminal.feed(text.replace("\n", "\r\n").encode())
    return terminal


def span(line: int, x: int, end_line: int, end_x: int) -> Span:
    return Span(Position(line, x), Position(end_line, end_x))


# Searching


def found(terminal: Terminal, text: str, *, regex: bool = False) -> list[Span]:
    return list(search(terminal, search_pattern(text, regex=regex)))


def test_search_in_the_scrollback_and_on_the_screen() -> None:
    terminal = shown("".join(f"line {n}\n" for n in range(8)))
    assert found(terminal, "line 1") == [span(1, 0, 1, 6)]
    assert found(terminal, "e 7") == [span(7, 3, 7, 6)]
    assert len(found(terminal, "line")) == 8
    assert found(terminal, "nothing") == []


def test_case_matters_if_there_are_capitals() -> None:
    terminal = shown("abc ABC")
    assert len(found(terminal, "abc")) == 2
    assert found(terminal, "ABC") == [span(0, 4, 0, 7)]


def test_a_text_is_no_regular_expression_unless_it_is_to_be() -> None:
    terminal = shown("a.c abc")
    assert found(terminal, "a.c") == [span(0, 0, 0, 3)]
    assert found(terminal, "a.c", regex=True) == [span(0, 0, 0, 3), span(0, 4, 0, 7)]
    assert found(terminal, "c$", regex=True) == [span(0, 6, 0, 7)]
    with pytest.raises(re.error):
        search_pattern("(", regex=True)


def test_an_empty_match_is_not_found() -> None:
    assert found(shown("abc"), "") == []
    assert found(shown("abc"), "x*", regex=True) == []


def test_search_goes_on_in_the_next_row() -> None:
    assert found(shown("abcdefghijklm"), "ijk") == [span(0, 8, 1, 1)]
    assert found(shown("abcdefghij\nklm"), "ijk") == []


def test_search_counts_cells() -> None:
    terminal = shown("你好e\u0301x")
    assert found(terminal, "好") == [span(0, 2, 0, 4)]
    assert found(terminal, "x") == [span(0, 5, 0, 6)]
    assert found(terminal, "e\u0301") == [span(0, 4, 0, 5)]


def all_of(matches: Matches) -> Matches:
    while not matches.is_done:
        matches.go_on(0)
    return matches


def test_matches_are_gone_through_in_both_directions() -> None:
    terminal = shown("ab ab\n\nab\nx")
    matches = all_of(Matches(terminal.freeze(), search_pattern("ab")))
    assert matches.count == 3
    places = [span(0, 0, 0, 2), span(0, 3, 0, 5), span(2, 0, 2, 2)]
    assert [matches.rank(place) for place in places] == [1, 2, 3]
    assert matches.rank(span(1, 0, 1, 2)) == 0
    for place, following in zip(places, [*places[1:], places[0]], strict=True):
        assert matches.after(place.start) == following
        assert matches.before(following.start) == place
    assert matches.after(Position(1, 5)) == matches.before(Position(3, 0)) == places[2]
    assert matches.after(Position(9, 0)) == places[0]
    assert matches.before(Position(-1, 0)) == places[2]
    assert matches.on_line(0) == places[:2]
    assert matches.on_line(1) == matches.on_line(3) == []


def test_without_a_match_there_is_nowhere_to_go() -> None:
    matches = all_of(Matches(shown("abc").freeze(), search_pattern("x")))
    assert matches.count == 0
    assert matches.after(Position(0, 0)) is matches.before(Position(0, 0)) is None


def test_matches_that_go_on_in_the_next_row_are_on_both() -> None:
    matches = all_of(Matches(shown("abcdefghijklm").freeze(), search_pattern("ijk")))
    assert matches.on_line(0) == matches.on_line(1) == [span(0, 8, 1, 1)]


def test_a_search_is_done_in_slices() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 0.001
        return now

    terminal = make_terminal(10, 4, scrollback=100)
    terminal.feed(b"ab\r\n" * 100)
    matches = Matches(terminal.freeze(), search_pattern("a"), clock=clock)
    matches.go_on(0.01)
    assert 0 < matches.count < 20
    assert not matches.is_done
    assert all_of(matches).count == 100


def test_a_line_without_an_end_is_searched_in_parts() -> None:
    terminal = make_terminal(100, 4, scrollback=1000)
    terminal.feed(b"ab" * 40_000)
    matches = all_of(Matches(terminal.freeze(), search_pattern("ab")))
    assert matches.count == 40_000
    assert len(matches.on_line(500)) == 50


def test_search_over_a_place_that_stayed_empty() -> None:
    assert found(shown("abcdefghi你x"), "i你") == [span(0, 8, 1, 2)]


# Selecting


def test_a_selection_in_one_line() -> None:
    assert selected_text(shown("hello world"[:10]), span(0, 2, 0, 7)) == "llo w"


def test_a_selection_over_lines() -> None:
    terminal = shown("first  \nsecond\n\nthird", rows=2)
    assert selected_text(terminal, span(0, 2, 3, 3)) == "rst\nsecond\n\nthi"


def test_a_selection_puts_rows_of_a_line_together() -> None:
    assert selected_text(shown("abcdefghijklm\nx"), span(0, 8, 2, 1)) == "ijklm\nx"
    assert selected_text(shown("abcdefghi你x"), span(0, 7, 1, 3)) == "hi你x"


def test_a_selection_beyond_what_there_is() -> None:
    assert selected_text(shown("abc"), span(-5, 0, 99, 99)).rstrip("\n") == "abc"


def test_a_block() -> None:
    terminal = shown("abcd\nefgh\nij")
    assert block_text(terminal, Position(0, 1), Position(2, 2)) == "bc\nfg\nj"
    assert block_text(terminal, Position(2, 2), Position(0, 1)) == "bc\nfg\nj"


def test_a_line_with_all_its_rows() -> None:
    terminal = shown("a\nbcdefghijklm\nn")
    for number in (1, 2):
        assert line_at(terminal, Position(number, 5)) == span(1, 0, 2, 10)
    assert selected_text(terminal, line_at(terminal, Position(1, 0))) == "bcdefghijklm"


@each(
    ("text", "x", "word"),
    [
        ("ls /tmp/a-b.c (x)", 5, "/tmp/a-b.c"),
        ("ls /tmp/a-b.c (x)", 3, "/tmp/a-b.c"),
        ("ls /tmp/a-b.c (x)", 0, "ls"),
        ("ls   (x)", 3, "   "),
        ("ls (x)", 3, "("),
        ("x https://example.org/?a=b#c y", 10, "https://example.org/?a=b#c"),
        ("你好 世界", 1, "你好"),
        ("你好 世界", 2, "你好"),
        ("（你）", 0, "（"),
        ("（你）", 1, "（"),
        ("naïve café", 7, "café"),
    ],
)
def test_words(text: str, x: int, word: str) -> None:
    terminal = shown(text, 40)
    assert selected_text(terminal, word_at(terminal, Position(0, x))) == word


def test_a_word_goes_on_in_the_next_row() -> None:
    terminal = shown("ab cdefghijklm n")
    for position in (Position(0, 5), Position(1, 1)):
        assert selected_text(terminal, word_at(terminal, position)) == "cdefghijklm"


def test_a_word_does_not_go_on_in_the_next_line() -> None:
    terminal = shown("abc\ndef")
    assert word_at(terminal, Position(0, 1)) == span(0, 0, 0, 3)


def test_frozen_lines_stay_as_they_were() -> None:
    terminal = shown("\x1b[31mone\x1b[m 你e\u0301\n" * 5 + "abcdefghijklm", 10, 4)
    frozen = terminal.freeze()
    numbers = range(terminal.first_line - 1, terminal.end_line + 1)
    assert (frozen.first_line, frozen.end_line) == (terminal.first_line, terminal.end_line)
    for number in numbers:
        assert frozen.text(number) == terminal.text(number)
        assert frozen.is_wrapped(number) == terminal.is_wrapped(number)
        assert (
            "".join(run.text for run in frozen.line(number)).rstrip()
            == "".join(run.text for run in terminal.line(number)).rstrip()
        )
    before = [frozen.line(number) for number in numbers]
    terminal.feed(b"\x1bc" + b"x\r\n" * 20)
    assert [frozen.line(number) for number in numbers] == before


def test_the_alternate_screen_is_frozen_without_the_scrollback() -> None:
    terminal = shown("a\n" * 9)
    terminal.feed(b"\x1b[?1049h\x1b[Hvi")
    frozen = terminal.freeze()
    assert (frozen.first_line, frozen.end_line) == (terminal.screen_line, terminal.end_line)
    assert frozen.text(frozen.first_line) == "vi"


# Moving


def path(
    terminal: Terminal, start: tuple[int, int], motion: Motion, count: int
) -> list[tuple[int, int]]:
    places, position = [], Position(*start)
    for _ in range(count):
        position = move(terminal, position, motion)
        places.append(tuple(position))
    return places  # type: ignore[return-value]


def test_moving_by_characters() -> None:
    terminal = shown("a你b\nxyz")
    assert path(terminal, (0, 0), Motion.RIGHT, 3) == [(0, 1), (0, 3), (0, 4)]
    assert path(terminal, (0, 3), Motion.LEFT, 3) == [(0, 1), (0, 0), (0, 0)]
    assert path(terminal, (1, 2), Motion.UP, 2) == [(0, 1), (0, 1)]
    assert path(terminal, (2, 2), Motion.DOWN, 2) == [(3, 2), (3, 2)]
    assert path(terminal, (0, 8), Motion.RIGHT, 2) == [(0, 9), (0, 9)]


def test_moving_by_words() -> None:
    terminal = shown("one two\n\n  (x) three")
    nexts = path(terminal, (0, 0), Motion.WORD_NEXT, 6)
    assert nexts == [(0, 4), (2, 2), (2, 3), (2, 4), (2, 6), (3, 0)]
    ends = path(terminal, (0, 0), Motion.WORD_END, 6)
    assert ends == [(0, 2), (0, 6), (2, 2), (2, 3), (2, 4), (3, 0)]
    backs = path(terminal, (3, 0), Motion.WORD_BACK, 7)
    assert backs == [(2, 6), (2, 4), (2, 3), (2, 2), (0, 4), (0, 0), (0, 0)]


def test_moving_in_a_line() -> None:
    terminal = shown("  abcdefghijk  \nx")
    assert move(terminal, Position(1, 1), Motion.LINE_START) == (0, 0)
    assert move(terminal, Position(1, 1), Motion.LINE_TEXT) == (0, 2)
    assert move(terminal, Position(0, 1), Motion.LINE_END) == (1, 2)
    assert move(terminal, Position(3, 3), Motion.LINE_END) == (3, 0)


def test_moving_to_the_ends() -> None:
    terminal = shown("a\nb\nc\nd\ne\nf")
    assert move(terminal, Position(3, 3), Motion.TOP) == (0, 0)
    assert move(terminal, Position(0, 3), Motion.BOTTOM) == (5, 0)


def test_moving_by_paragraphs() -> None:
    terminal = shown("a\nb\n\n\nc\n  \nd", 10, 8)
    assert path(terminal, (0, 1), Motion.PARAGRAPH_NEXT, 4) == [(2, 0), (5, 0), (7, 0), (7, 0)]
    assert path(terminal, (6, 0), Motion.PARAGRAPH_BACK, 4) == [(5, 0), (3, 0), (0, 0), (0, 0)]


def test_moving_from_prompt_to_prompt() -> None:
    prompt = "\x1b]133;A\x07$ \x1b]133;B\x07"
    terminal = shown(f"{prompt}a\nb\nc\n{prompt}d\ne\n{prompt}")
    assert path(terminal, (5, 2), Motion.PROMPT_BACK, 3) == [(3, 0), (0, 0), (0, 0)]
    assert path(terminal, (0, 0), Motion.PROMPT_NEXT, 3) == [(3, 0), (5, 0), (5, 0)]


def test_places_that_are_not_there_are_the_nearest_that_are() -> None:
    terminal = shown("ab")
    assert move(terminal, Position(-5, -5), Motion.LEFT) == (0, 0)
    assert move(terminal, Position(99, 99), Motion.DOWN) == (3, 9)


@settings(max_examples=examples(150))
@given(
    size=SIZES,
    data=OUTPUT,
    line=st.integers(-2, 20),
    x=st.integers(-2, 20),
    text=st.sampled_from(["a", "hello", ".", "你", r"\S+", "x+$"]),
)
def test_any_output_can_be_searched_selected_and_walked_over(
    size: tuple[int, int], data: bytes, line: int, x: int, text: str
) -> None:
    terminal = make_terminal(*size, scrollback=10)
    terminal.feed(data)
    position = Position(line, x)
    for motion in Motion:
        place = move(terminal, position, motion)
        assert terminal.first_line <= place.line < terminal.end_line
        assert 0 <= place.x < terminal.columns
        cells = terminal.cells(place.line)
        assert place.x >= len(cells) or cells[place.x]
    selected_text(terminal, word_at(terminal, position))
    selected_text(terminal, line_at(terminal, position))
    block_text(terminal, position, Position(0, 0))
    pattern = search_pattern(text, regex=True)
    frozen = terminal.freeze()
    matches = all_of(Matches(frozen, pattern))
    assert matches.count == len(list(search(terminal, pattern)))
    for number in range(terminal.first_line, terminal.end_line):
        assert frozen.text(number) == terminal.text(number)
        matches.on_line(number)
    for match in search(terminal, pattern):
        assert matches.rank(match)
        assert pattern.search(selected_text(terminal, match))
