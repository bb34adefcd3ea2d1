"""Emoji take the columns in a pane that their program has counted for them."""

from __future__ import annotations

from quicksand_panes.row_drawing import line_strip
from quicksand_vt import Terminal
from rich.cells import cell_len
from rich.style import Style as RichStyle

from tests.each import each

LINES = {
    "👍🏽|": "👍🏽  |",
    "❤\ufe0f|": "❤|",
    "1\ufe0f\u20e3|": "1\u20e3|",
    "🇩🇪|": "🇩🇪|",
    "👩\u200d💻|": "👩\u200d💻|",
    "☝🏽|": "☝🏽  |",
    "🏳\ufe0f\u200d🌈|": "🏳\u200d🌈|",
    "你好é─|": "你好é─|",
}
"""What is drawn for what a program has written, whose columns the C library counted."""


def drawn(text: str) -> tuple[str, int]:
    """The text of a line in a pane, and where the bar stands in it."""
    terminal = Terminal(20, 2)
    terminal.feed(text.encode())
    strip = line_strip(terminal.line(0), 20, RichStyle(), lambda _: "")
    assert strip.cell_length == 20
    return strip.text, terminal.cells(0).index("|")


@each("text", LINES)
def test_an_emoji_has_the_columns_that_its_program_counts(text: str) -> None:
    shown, bar = drawn(text)
    assert shown.rstrip() == LINES[text]
    assert cell_len(shown[: shown.index("|")]) == bar


# Rich takes a hand with a skin tone for one column wide.
@each("text", [text for text in LINES if "☝" not in text])
def test_with_mode_2027_it_is_one_cluster(text: str) -> None:
    shown, _ = drawn(f"\x1b[?2027h{text}")
    assert shown.rstrip() == text
