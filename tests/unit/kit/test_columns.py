"""What follows an emoji stays in its column, whatever a terminal takes for the emoji's width."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quicksand_driver.columns import keep_columns
from quicksand_vt import Run, Terminal
from rich.cells import cell_len

from tests.each import each
from tests.unit.terminal.tmux import tmux_screen

SHIELD, KEYCAP, HEART = "\U0001f6e1\ufe0f", "1\ufe0f\u20e3", "\u2764\ufe0f"
THUMB, FAMILY = "\U0001f44d\U0001f3fd", "\U0001f468\u200d\U0001f469\u200d\U0001f467"
FLAG, ENGLAND = "\U0001f1e9\U0001f1ea", "\U0001f3f4\U000e0067\U000e0062\U000e007f"
EMOJI = (SHIELD, KEYCAP, HEART, THUMB, FAMILY, FLAG, ENGLAND, "\u2764\ufe0e")

STYLES = ("38;2;1;2;3;48;2;4;5;6", "1;38;2;1;2;3", "48;5;17", "31;42", "2;3;4;7;9", "7", "")
TEXTS = ("a", "word ", "ä漢", " ", "\r\n", "\x1b[2;3H", "\x1b[?25l", "")


def drawn(text: str) -> list[list[Run]]:
    """What a terminal shows that counts as Rich does."""
    terminal = Terminal(30, 8)
    terminal.feed(b"\x1b[?2027h" + text.encode())
    return [terminal.line(line) for line in range(terminal.screen_line, terminal.end_line)]


def as_textual(runs: list[tuple[str, str]]) -> str:
    return "".join(f"\x1b[{style}m{text}\x1b[0m" if style else text for style, text in runs)


@each("emoji", EMOJI, ids=ascii)
def test_a_border_behind_an_emoji_stays_in_its_column_in_tmux(emoji: str) -> None:
    row = f"│ {emoji} text {emoji}{emoji}"
    written = keep_columns(f"\x1b[3;5H{row}")
    screen = tmux_screen(f"\x1b[3;1H{'#' * 40}{written}│".encode())
    assert screen["cursor"] == [4 + cell_len(row) + 1, 2]
    # Nor is what was there before seen through it.
    assert "#" not in screen["lines"][2].strip("#")


def test_what_nobody_disputes_is_not_touched() -> None:
    for text in ("\x1b[3;5Hplain", "\x1b[1;1Häé漢字 \U0001f600 │", "", "\x1b[31mx\x1b[0m"):
        assert keep_columns(text) is text


def test_without_a_column_nothing_is_moved() -> None:
    for text in (SHIELD, f"\x1b[2;2H\n{SHIELD}", f"\x1b[2;2H\x1b[5C{SHIELD}│"):
        assert keep_columns(text) == text


def test_styles_and_links_do_not_lose_the_column() -> None:
    text = f"\x1b[2;3H\x1b[31mab\x1b[0m\x1b]8;;http://x\x1b\\{SHIELD}\x1b]8;;\x1b\\|"
    assert f"\x1b[2X{SHIELD}\x1b[7G" in keep_columns(text)


@given(
    st.lists(
        st.tuples(st.sampled_from(STYLES), st.sampled_from((*TEXTS, *EMOJI, "\x1b[1;1H"))),
        max_size=20,
    )
)
def test_where_the_widths_agree_the_same_is_drawn(runs: list[tuple[str, str]]) -> None:
    text = "\x1b[1;1H" + as_textual(runs)
    kept = keep_columns(text)
    for written in (text, kept):
        assert written.startswith("\x1b[1;1H")
    assert texts(kept) == texts(text)


def texts(text: str) -> list[str]:
    return ["".join(run.text for run in line) for line in drawn(text)]


@given(st.text(alphabet="\x1b[]m;0123456789 ahHJ\r\n" + "".join(EMOJI), max_size=60))
def test_nothing_is_lost_of_anything(text: str) -> None:
    kept = keep_columns(text)
    for char in EMOJI[0] + EMOJI[3]:
        assert kept.count(char) == text.count(char)
