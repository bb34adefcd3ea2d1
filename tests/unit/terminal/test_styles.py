"""SGR, and what erasing leaves."""

from __future__ import annotations

from quicksand_vt import RGB, Attribute, Style, Terminal, Underline
from quicksand_vt.style import PLAIN, apply_sgr, sgr_text

from tests.each import each
from tests.unit.terminal.cases import make_terminal

BOLD, DIM, ITALIC = Attribute.BOLD, Attribute.DIM, Attribute.ITALIC

SGR = {
    "": PLAIN,
    "0": PLAIN,
    "1": Style(attributes=BOLD),
    "1;2;3": Style(attributes=BOLD | DIM | ITALIC),
    "5": Style(attributes=Attribute.BLINK),
    "6": Style(attributes=Attribute.BLINK),
    "7;8;9;53": Style(
        attributes=Attribute.REVERSE | Attribute.HIDDEN | Attribute.STRIKE | Attribute.OVERLINE
    ),
    "1;2;3;22": Style(attributes=ITALIC),
    "3;5;7;8;9;53;23;25;27;28;29;55": PLAIN,
    "4": Style(underline=Underline.SINGLE),
    "21": Style(underline=Underline.DOUBLE),
    "4:0": PLAIN,
    "4:3": Style(underline=Underline.CURLY),
    "4:5": Style(underline=Underline.DASHED),
    "4:6": PLAIN,
    "4;24": PLAIN,
    "31;42": Style(fg=1, bg=2),
    "97;107": Style(fg=15, bg=15),
    "31;42;39;49": PLAIN,
    "38;5;200": Style(fg=200),
    "48;5;0": Style(bg=0),
    "38;5;256": PLAIN,
    "38:5:200": Style(fg=200),
    "38;2;1;2;3": Style(fg=RGB | 0x010203),
    "38:2:1:2:3": Style(fg=RGB | 0x010203),
    "38:2::1:2:3": Style(fg=RGB | 0x010203),
    "38:2:0:1:2:3:0:0": Style(fg=RGB | 0x010203),
    "48;2;255;0;128;1": Style(bg=RGB | 0xFF0080, attributes=BOLD),
    "38;2;256;0;0;1": Style(attributes=BOLD),
    "38;2;1;2": Style(fg=RGB | 0x010200),
    "38;2;;;": Style(fg=RGB),
    "38": PLAIN,
    "38;7;1": Style(attributes=BOLD),
    "38:5": PLAIN,
    "38:2:1": PLAIN,
    "58;5;3": Style(underline_colour=3),
    "58:2::1:2:3": Style(underline_colour=RGB | 0x010203),
    "58:5:3;59": PLAIN,
    "1;999;31": Style(fg=1, attributes=BOLD),
    "1:2;31": Style(fg=1),
    ":;:": PLAIN,
    "31;": PLAIN,
    ";31": Style(fg=1),
    "99999999999999": PLAIN,
}


@each("params", SGR)
def test_sgr(params: str) -> None:
    assert apply_sgr(PLAIN, params) == SGR[params]


@each("style", [style for style in SGR.values() if not style.link])
def test_a_style_can_be_told_as_sgr(style: Style) -> None:
    assert apply_sgr(Style(fg=9, attributes=255, underline=2), sgr_text(style)) == style


def style_at(terminal: Terminal, x: int, y: int = 0) -> Style:
    styles = [run.style for run in terminal.line(y) for _ in range(run.columns)]
    return styles[x]


RED = Style(bg=1)


@each(
    ("sequence", "coloured"),
    [
        ("\x1b[K", range(3, 10)),
        ("\x1b[1K", range(4)),
        ("\x1b[2K", range(10)),
        ("\x1b[J", range(3, 10)),
        ("\x1b[2J", range(10)),
        ("\x1b[2X", range(3, 5)),
        ("\x1b[2@", range(3, 5)),
        ("\x1b[2P", range(8, 10)),
        ("\x1b[L", range(10)),
        ("\x1b[4M", range(10)),
        ("\x1b[T", range(10)),
    ],
)
def test_what_is_erased_has_the_background(sequence: str, coloured: range) -> None:
    terminal = make_terminal()
    terminal.feed(f"abcdefghij\x1b[1;4H\x1b[1;4;7;32;41m{sequence}".encode())
    assert [x for x in range(10) if style_at(terminal, x) == RED] == list(coloured)
    assert all(style_at(terminal, x) in (RED, PLAIN) for x in range(10))


def test_what_scrolls_in_has_the_background() -> None:
    terminal = make_terminal()
    terminal.feed(b"\x1b[41m\x1b[4;1H\n")
    line = terminal.screen_line + 3
    assert [(run.style, run.columns) for run in terminal.line(line)] == [(RED, 10)]


def test_runs_of_a_line() -> None:
    terminal = make_terminal()
    terminal.feed("a\x1b[31mb你\x1b[mc".encode())
    assert terminal.line(0) == [
        ("a", PLAIN, 1),
        ("b你", Style(fg=1), 3),
        ("c     ", PLAIN, 6),
    ]


def test_reverse_video_draws_everything_anew() -> None:
    terminal = make_terminal()
    terminal.take_damage()
    terminal.feed(b"\x1b[?5h")
    assert terminal.modes.reverse_video
    assert terminal.take_damage().all


def test_decrc_restores_the_style() -> None:
    terminal = make_terminal()
    terminal.feed(b"\x1b[1;31m\x1b7\x1b[m\x1b8x")
    assert style_at(terminal, 0) == Style(fg=1, attributes=BOLD)
