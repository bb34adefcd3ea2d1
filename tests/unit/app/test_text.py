"""Foreign text cannot do anything but be read."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from quicksand_tui.model.text import (
    REPLACEMENT,
    cells,
    clip,
    clip_middle,
    plain,
    sanitise,
    sanitise_lines,
)
from tests.each import each
from tests.unit.app.corpus import HOSTILE


def assert_harmless(text: str) -> None:
    for char in text:
        assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    assert not set(text) & set("\x1b\n\r\t\u3164")


@each("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_one_harmless_line_of_bounded_length(text: str) -> None:
    found = sanitise(text, limit=200)
    assert_harmless(found)
    assert len(found) <= 200


@given(st.text(alphabet=st.characters(), max_size=300))
def test_any_text_is_made_harmless(text: str) -> None:
    found = sanitise(text, limit=100)
    assert_harmless(found)
    assert len(found) <= 100
    for line in sanitise_lines(text):
        assert_harmless(line)


@given(st.binary(max_size=300))
def test_any_bytes_of_a_guest_are_made_harmless(data: bytes) -> None:
    for line in sanitise_lines(data.decode("utf-8", "replace")):
        assert_harmless(line)


def test_readable_text_stays_as_it_is() -> None:
    for text in ("web-1", "naïve café", "日本語", "e\u0301", "[not markup]", "a b"):
        assert sanitise(text) == text


def test_escape_sequences_vanish_and_other_controls_are_shown() -> None:
    assert sanitise("\x1b[1;32mok\x1b[0m done") == "ok done"
    assert sanitise("a\x07b") == f"a{REPLACEMENT}b"
    assert sanitise("\u202eabc") == f"{REPLACEMENT}abc"


def test_lines_show_what_a_terminal_would_have_shown_last() -> None:
    assert sanitise_lines("10%\r50%\r100%\r\nnext\tcolumn\n") == ["100%", "next    column", ""]


@given(st.text(max_size=50), st.integers(0, 20))
def test_clipping_never_exceeds_the_width(text: str, width: int) -> None:
    assert cell_len(clip(sanitise(text), width)) <= width


@given(st.text(max_size=50))
def test_plain_text_is_ascii(text: str) -> None:
    assert plain(text).isascii()


@given(text=st.text(max_size=60), width=st.integers(0, 40))
def test_a_text_cut_in_its_middle_fits(text: str, width: int) -> None:
    assert cell_len(clip_middle(sanitise(text), width)) <= width


def test_a_text_cut_in_its_middle_keeps_its_end() -> None:
    assert clip_middle("before revert to base 12:00:07", 20) == "before revert…:00:07"
    assert clip_middle("short", 5) == "short"


def test_what_a_table_counts_is_what_it_takes_on_the_screen() -> None:
    """Without rich, which the app counts with."""
    for text in ("web", "● running", "日本語", "e\u0301", "größe", "한글", "└─○ tag", "→"):
        assert cells(text) == cell_len(text), text
