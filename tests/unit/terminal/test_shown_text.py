"""Titles and notifications are as harmless as all foreign text that the app shows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quicksand_vt.shown_text import one_line

from quicksand_tui.model.text import sanitise
from tests.each import each

ODD = "\x07\t\x7f\x9b\x9d[1;m\u0300\u0301\u034f\u0488\u1160\u200d\u202e\u3000\ufe0f😀你"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters(exclude_characters="\x1b")))


@given(TEXTS, st.integers(1, 12))
def test_it_is_what_the_app_makes_of_foreign_text(text: str, limit: int) -> None:
    """But for sequences that begin with ESC, which ends every string of the parser."""
    assert one_line(text, limit=limit) == sanitise(text, limit=limit)


@each(
    ("text", "shown"),
    [
        ("a\tb\u3000c", "a b c"),
        ("a\x9b2Jb", "ab"),
        ("a\u202eb\u200dc", "a\ufffdb\ufffdc"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 4),
        ("\u0301a", "\ufffda"),
        ("nine characters", "nine cha…"),
    ],
)
def test_it_is_one_line_without_what_could_do_harm(text: str, shown: str) -> None:
    assert one_line(text, limit=9) == shown
