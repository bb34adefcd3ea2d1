"""Other sizes: what becomes of lines, of the cursor, of the scrollback."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand_vt import Mark, Terminal

from tests.conftest import examples
from tests.each import each
from tests.unit.terminal.cases import all_rows, cursor_of, make_terminal, screen_rows
from tests.unit.terminal.soundness import check_sound

LETTERS = b"abcdefghijklmnopqrst"


def fed(data: bytes | str, columns: int = 10, rows: int = 4, *, scrollback: int = 100) -> Terminal:
    terminal = make_terminal(columns, rows, scrollback=scrollback)
    terminal.feed(data.encode() if isinstance(data, str) else data)
    return terminal


def numbered(count: int) -> bytes:
    return b"\r\n".join(b"line %d" % n for n in range(count))


# Lines that go on


@each(
    ("data", "expected"),
    [
        (LETTERS, (True, False)),
        (LETTERS + b"\x1b[1;10H!", (False, False)),
        (LETTERS + b"\x1b[H\x1b[K", (False, False)),
        (LETTERS + b"\x1b[2;1H\x1b[K", (True, False)),
        (LETTERS + b"\x1b[2;1H\x1b[J", (False, False)),
        (LETTERS + b"\x1b[2;1H\x1b[L", (False, False)),
        (LETTERS + b"\x1b[2;1H\x1b[M", (False, False)),
        (LETTERS + b"\x1b[H\x1b[L", (False, True)),
        (LETTERS + b"\x1b[1;5H\x1b[P", (False, False)),
        (LETTERS + b"\x1b[T", (False, True)),
        (LETTERS + b"\x1b[1;1H" + LETTERS, (True, False)),
        (b"\x1b[1;2r\x1b[4;1H" + LETTERS, (False, False)),
    ],
)
def test_which_lines_go_on(data: bytes, expected: tuple[bool, bool]) -> None:
    terminal = fed(data)
    assert tuple(terminal.is_wrapped(terminal.screen_line + y) for y in range(2)) == expected


def test_a_line_may_go_on_from_the_scrollback() -> None:
    terminal = fed(b"\n\n\n" + LETTERS + b"\r\n\n\n")
    assert terminal.is_wrapped(3)
    assert terminal.screen_line == 4
    terminal.feed(b"\x1b[S")
    assert terminal.is_wrapped(3)


def test_a_line_from_the_scrollback_ends_where_the_screen_is_cleared() -> None:
    terminal = fed(b"\n\n\n\x1b[31m" + LETTERS + b"\r\n\n\n\x1b[2J")
    assert not terminal.is_wrapped(3)
    assert terminal.line(3)[0].text == "abcdefghij"


# The scrollback


def test_lines_that_leave_at_the_top_are_kept() -> None:
    terminal = fed(numbered(7))
    assert all_rows(terminal) == tuple(f"line {n}" for n in range(7))
    assert (terminal.first_line, terminal.screen_line, terminal.end_line) == (0, 3, 7)


def test_the_oldest_lines_go_and_the_others_keep_their_numbers() -> None:
    terminal = fed(numbered(50), scrollback=10)
    assert (terminal.first_line, terminal.screen_line) == (36, 46)
    assert "".join(terminal.cells(40)).rstrip() == "line 40"
    assert terminal.cells(35) == [] == terminal.line(35)


def test_nothing_is_kept_if_nothing_is_to_be() -> None:
    terminal = fed(numbered(50), scrollback=0)
    assert (terminal.first_line, terminal.screen_line) == (46, 46)
    assert screen_rows(terminal)[-1] == "line 49"


def test_the_alternate_screen_keeps_nothing() -> None:
    terminal = fed(numbered(6) + b"\x1b[?1049h" + numbered(50))
    assert (terminal.first_line, terminal.screen_line) == (2, 2)
    terminal.feed(b"\x1b[?1049l")
    assert all_rows(terminal) == tuple(f"line {n}" for n in range(6))


def test_a_region_at_the_top_keeps_what_leaves_it() -> None:
    terminal = fed(b"\x1b[1;3ra\r\nb\r\nc\r\nd\r\ne")
    assert all_rows(terminal) == ("a", "b", "c", "d", "e")


def test_a_region_below_the_top_keeps_nothing() -> None:
    terminal = fed(b"\x1b[2;4r\x1b[2Ha\r\nb\r\nc\r\nd\r\ne")
    assert all_rows(terminal) == ("", "c", "d", "e")


def test_deleted_lines_are_gone() -> None:
    terminal = fed(b"a\r\nb\r\nc\x1b[H\x1b[2M")
    assert all_rows(terminal) == ("c",)


def test_scrolling_up_keeps_lines() -> None:
    terminal = fed(b"a\r\nb\r\nc\x1b[2S")
    assert all_rows(terminal) == ("a", "b", "c")


def test_the_scrollback_can_be_cleared() -> None:
    terminal = fed(numbered(9) + b"\x1b[3J")
    assert (terminal.first_line, terminal.screen_line) == (5, 5)
    assert screen_rows(terminal)[-1] == "line 8"


def test_a_reset_clears_the_scrollback() -> None:
    terminal = fed(numbered(9) + b"\x1bc")
    assert all_rows(terminal) == ()


def test_styles_are_kept() -> None:
    line = "\x1b[1;31mred\x1b[m plain \x1b[48;2;1;2;3m你e\u0301\x1b[m \x1b[4:3;58:5:9mx\x1b[m"
    terminal = fed(line, 20)
    before = [run for run in terminal.line(0) if run.text.strip()]
    terminal.feed(b"\r\n" * 9)
    assert terminal.screen_line > 0
    assert [run for run in terminal.line(0) if run.text.strip()] == before


def test_a_coloured_end_of_a_line_is_kept() -> None:
    terminal = fed(b"ab\x1b[41m\x1b[K\x1b[m" + b"\r\n" * 9)
    assert [(run.text, run.columns) for run in terminal.line(0)] == [("ab", 2), (" " * 8, 8)]


# Height


def test_a_lower_screen_gives_up_blank_rows_first() -> None:
    terminal = fed(b"a\r\nb", rows=6)
    terminal.resize(10, 3)
    assert screen_rows(terminal) == ("a", "b")
    assert cursor_of(terminal) == (1, 1)
    assert terminal.screen_line == 0


def test_a_lower_screen_pushes_rows_out_at_the_top() -> None:
    terminal = fed(numbered(4))
    terminal.resize(10, 2)
    assert screen_rows(terminal) == ("line 2", "line 3")
    assert cursor_of(terminal) == (6, 1)
    assert terminal.screen_line == 2


def test_a_higher_screen_gets_rows_back() -> None:
    terminal = fed(numbered(9))
    terminal.resize(10, 7)
    assert screen_rows(terminal) == tuple(f"line {n}" for n in range(2, 9))
    assert cursor_of(terminal) == (6, 6)


def test_a_higher_screen_with_nothing_to_get_back_has_blank_rows() -> None:
    terminal = fed(numbered(3))
    terminal.resize(10, 7)
    assert screen_rows(terminal) == ("line 0", "line 1", "line 2")
    assert cursor_of(terminal) == (6, 2)


def test_the_cursor_stays_on_the_screen_even_if_rows_below_it_do_not() -> None:
    terminal = fed(numbered(4) + b"\x1b[2;3H")
    terminal.resize(10, 2)
    assert screen_rows(terminal) == ("line 1", "line 2")
    assert cursor_of(terminal) == (2, 0)


def test_lower_and_higher_again_changes_nothing() -> None:
    terminal = fed(numbered(20))
    before = all_rows(terminal), cursor_of(terminal)
    for rows in (2, 1, 3, 4):
        terminal.resize(10, rows)
    assert (all_rows(terminal), cursor_of(terminal)) == before


# Width


def test_a_narrower_screen_wraps_lines() -> None:
    terminal = fed(LETTERS, columns=20)
    terminal.resize(8, 4)
    assert screen_rows(terminal) == ("abcdefgh", "ijklmnop", "qrst")
    assert [terminal.is_wrapped(n) for n in range(4)] == [True, True, False, False]


def test_a_wider_screen_puts_lines_together_again() -> None:
    terminal = fed(LETTERS + b"\r\nnext")
    terminal.resize(30, 4)
    assert screen_rows(terminal) == (LETTERS.decode(), "next")
    assert cursor_of(terminal) == (4, 1)


def test_lines_that_ended_stay_apart() -> None:
    terminal = fed(b"abcdefghij\r\nklm")
    terminal.resize(20, 4)
    assert screen_rows(terminal) == ("abcdefghij", "klm")


@each("columns", [2, 3, 5, 7, 9, 11, 13, 20, 40])
def test_the_cursor_stays_at_its_character(columns: int) -> None:
    terminal = fed(b"before\r\n" + LETTERS + b"\x1b[2;4H", columns=30)
    terminal.resize(columns, 20)
    x, y = cursor_of(terminal)
    assert terminal.cells(terminal.screen_line + y)[x] == "d"


@each("columns", [2, 5, 10, 20, 21, 40])
def test_output_goes_on_where_it_was(columns: int) -> None:
    terminal = fed(b"abcdefghij" * 2, columns=20)
    terminal.resize(columns, 30)
    terminal.feed(b"!\r\nx")
    terminal.resize(40, 30)
    assert screen_rows(terminal) == ("abcdefghij" * 2 + "!", "x")


def test_the_scrollback_is_laid_out_anew() -> None:
    terminal = fed(b"".join(b"%05d" % n * 5 + b"\r\n" for n in range(20)), columns=30)
    terminal.resize(10, 4)
    assert all_rows(terminal)[:3] == ("0000000000", "0000000000", "00000")
    terminal.resize(30, 4)
    assert all_rows(terminal) == tuple(f"{n:05d}" * 5 for n in range(20))


def test_a_narrow_screen_drops_what_is_too_much() -> None:
    terminal = fed(
        b"".join(b"%05d" % n * 5 + b"\r\n" for n in range(20)), columns=30, scrollback=20
    )
    terminal.resize(5, 4)
    assert terminal.screen_line - terminal.first_line == 20
    assert all_rows(terminal)[-1] == "00019"


def test_wide_characters_are_not_cut() -> None:
    terminal = fed("你好世界", columns=10)
    terminal.resize(5, 4)
    assert screen_rows(terminal) == ("你好", "世界")
    terminal.resize(3, 6)
    assert screen_rows(terminal) == ("你", "好", "世", "界")
    terminal.resize(10, 4)
    assert screen_rows(terminal) == ("你好世界",)


def test_a_place_that_stayed_empty_for_a_wide_character_is_no_blank() -> None:
    terminal = fed("abcdefghi你x", columns=10)
    terminal.resize(20, 4)
    assert screen_rows(terminal) == ("abcdefghi你x",)


def test_clusters_and_styles_go_along() -> None:
    text = "ab\x1b[31me\u0301\U0001f469\u200d\U0001f4bb\x1b[m" * 3
    terminal = fed(text, columns=20)
    before = [run for run in terminal.line(0) if run.text.strip()]
    terminal.resize(4, 10)
    assert screen_rows(terminal)[0] == "abe\u0301"
    terminal.resize(20, 4)
    assert [run for run in terminal.line(0) if run.text.strip()] == before


def test_marks_stay_at_the_beginning_of_their_line() -> None:
    terminal = fed(b"x\r\n\x1b]133;A\x07$ " + LETTERS, columns=30)
    terminal.resize(5, 10)
    assert [n for n in range(terminal.end_line) if terminal.mark(n) & Mark.PROMPT] == [1]
    terminal.resize(30, 10)
    assert [n for n in range(terminal.end_line) if terminal.mark(n) & Mark.PROMPT] == [1]


def test_a_cleared_screen_stays_at_its_top() -> None:
    terminal = fed(numbered(30) + b"\x1b[H\x1b[2J$ ", rows=10)
    terminal.resize(7, 10)
    assert screen_rows(terminal) == ("$",)
    assert cursor_of(terminal) == (2, 0)


def test_the_saved_cursor_stays_at_its_character() -> None:
    terminal = fed(LETTERS + b"\x1b[1;16H\x1b7\x1b[H", columns=20)
    terminal.resize(10, 4)
    terminal.feed(b"\x1b8!")
    assert screen_rows(terminal) == ("abcdefghij", "klmno!qrst")


# The alternate screen


def test_the_alternate_screen_is_cut_and_filled() -> None:
    terminal = fed(b"\x1b[?1049habcdefghijKLM\x1b[4;1Hend")
    terminal.resize(5, 3)
    assert screen_rows(terminal) == ("KLM", "", "end")
    assert cursor_of(terminal) == (3, 2)
    terminal.resize(10, 4)
    assert screen_rows(terminal) == ("KLM", "", "end")


def test_the_alternate_screen_cuts_wide_characters() -> None:
    terminal = fed("\x1b[?1049h你好世")
    terminal.resize(5, 4)
    assert screen_rows(terminal) == ("你好",)
    check_sound(terminal)


def test_the_main_screen_is_laid_out_while_the_alternate_one_is_shown() -> None:
    terminal = fed(LETTERS + b"\x1b[?1049hx", columns=20)
    terminal.resize(8, 4)
    terminal.feed(b"\x1b[?1049l!")
    assert screen_rows(terminal) == ("abcdefgh", "ijklmnop", "qrst!")


def test_the_region_is_reset() -> None:
    terminal = fed(b"\x1b[2;3r")
    terminal.resize(10, 5)
    terminal.feed(b"\x1b[5;1H\nx")
    assert cursor_of(terminal) == (1, 4)


def test_new_columns_have_tabs() -> None:
    terminal = fed(b"\x1b[3g")
    terminal.resize(40, 4)
    terminal.feed(b"\tx")
    assert cursor_of(terminal) == (17, 0)


@each("size", [(0, 0), (-5, -5), (1, 1), (10**9, 1), (2, 10**9)])
def test_sizes_that_cannot_be_are_the_nearest_that_can(size: tuple[int, int]) -> None:
    terminal = fed("你好")
    terminal.resize(*size)
    assert 2 <= terminal.columns <= 1000
    assert 1 <= terminal.rows <= 1000
    terminal.feed("你好".encode())


WORDS = st.sampled_from(
    ["a", "bc ", "你", "e\u0301", "\U0001f680", "x" * 13, "─", "\x1b[31m", "\r\n"]
)


@settings(max_examples=examples(200))
@given(
    text=st.lists(WORDS, max_size=60).map("".join), sizes=st.lists(st.integers(2, 30), max_size=5)
)
def test_no_text_is_lost_or_changed(text: str, sizes: list[int]) -> None:
    terminal = fed(text, columns=20, rows=5, scrollback=2000)
    before = written(terminal)
    for columns in sizes:
        terminal.resize(columns, 5)
        check_sound(terminal)
        assert written(terminal) == before
    terminal.resize(20, 5)
    assert written(terminal) == before


def written(terminal: Terminal) -> list[str]:
    """Lines as they were written."""
    lines, line = [], ""
    for number in range(terminal.first_line, terminal.end_line):
        line += "".join(terminal.cells(number))
        if not terminal.is_wrapped(number):
            lines.append(line.rstrip())
            line = ""
    while lines and not lines[-1]:
        lines.pop()
    return lines
