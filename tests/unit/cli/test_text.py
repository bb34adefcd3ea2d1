"""Foreign text on a terminal (scoreboard S3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.model.text import COMBINING_MAX, Plain, clean, clean_lines
from tests.each import each
from tests.unit.cli.corpus import HOSTILE


@each("text", HOSTILE, ids=ascii)
def test_cleaned_text_only_prints(text: str) -> None:
    assert clean(text).isprintable()


@given(st.text())
def test_whatever_is_cleaned_only_prints(text: str) -> None:
    assert clean(text).isprintable()


@each("text", ["plain", "größe ✓ 日本語 ไทย", "Việt", ""])
def test_honest_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


def test_what_is_escaped_can_still_be_read() -> None:
    assert clean("a\x1b[2J\u202eb\udcff") == "a\\x1b[2J\\u202eb\\xff"


def test_marks_cannot_be_piled_up() -> None:
    assert clean("z" + "\u0301" * 50).count("\u0301") == COMBINING_MAX


def test_lines_are_kept_where_that_is_wanted() -> None:
    assert clean_lines("one\r\ntwo\tthree\rfour\x1b") == "one\ntwo\tthree\\x0dfour\\x1b"


@each("text", HOSTILE, ids=ascii)
def test_a_plain_log_has_text_line_breaks_and_tabs_only(text: str) -> None:
    plain = Plain().feed(text.encode("utf-8", "surrogatepass"), final=True)
    assert all(c.isprintable() or c in "\n\t" for c in plain)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=5))
def test_a_plain_log_does_not_depend_on_how_it_is_cut(data: bytes, cuts: list[int]) -> None:
    whole = Plain().feed(data, final=True)
    plain, parts, at = Plain(), [], 0
    for cut in sorted(cuts):
        parts.append(plain.feed(data[at:cut]))
        at = max(at, cut)
    parts.append(plain.feed(data[at:], final=True))
    assert "".join(parts) == whole
    assert all(c.isprintable() or c in "\n\t" for c in whole)


@each(
    ("raw", "shown"),
    [
        (b"\x1b[1;32m[ OK ]\x1b[0m Started\r\n", "[ OK ] Started\n"),
        (b"\x1b]0;title\x07after", "after"),
        (b"\x1b]0;title\x1b\\after", "after"),
        (b"\x1b]0;never ended\nnext line", "\nnext line"),
        (b"\x1b(Bcharset \x1b=keypad", "charset keypad"),
        (b"caf\xc3\xa9 \xff", "café \N{REPLACEMENT CHARACTER}"),
        (b"\x1b[31", ""),
    ],
)
def test_sequences_vanish_from_a_plain_log(raw: bytes, shown: str) -> None:
    assert Plain().feed(raw, final=True) == shown
