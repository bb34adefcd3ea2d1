"""Keys and the mouse of the terminal, as events and as strokes."""

from __future__ import annotations

from quicksand_pixels.user_input import (
    ALT,
    CONTROL,
    PASTE_MAX,
    SHIFT,
    Chord,
    Command,
    Event,
    Focus,
    Pasted,
    Pointer,
    ScreenInput,
    Stroke,
    keysym_of,
    strokes,
)
from quicksand_pixels.ways import Colours, Way, choose_colours, choose_way, choose_way_in_text

from quicksand_tui.verbs.index import find_verb
from tests.each import each

PREFIX = Chord("]", control=True)

KEYS = [
    (b"a", Chord("a")),
    (b"A", Chord("A")),
    ("é漢".encode(), Chord("é"), Chord("漢")),
    (b"\r\t\x7f", Chord("enter"), Chord("tab"), Chord("backspace")),
    (b"\x03", Chord("c", control=True)),
    (b"\x00", Chord(" ", control=True)),
    (b"\x1bx", Chord("x", alt=True)),
    (b"\x1b[A\x1bOB", Chord("up"), Chord("down")),
    (b"\x1b[1;5C", Chord("right", control=True)),
    (b"\x1b[3~\x1b[15;2~", Chord("delete"), Chord("f5", shift=True)),
    (b"\x1bOP\x1b[24~", Chord("f1"), Chord("f12")),
    (b"\x1b[Z", Chord("tab", shift=True)),
    (b"\x1b[27u", Chord("escape")),
    (b"\x1b[105;5u", Chord("i", control=True)),
    (b"\x1b[13;2u", Chord("enter", shift=True)),
    (b"\x1b[57441;2u",),
    (b"\x1b[?62;4c\x1b[999z",),
    (b"\x1b[I\x1b[O", Focus(True), Focus(False)),
    (b"\x1d+", Command("+")),
    (b"\x1d\x1b[A", Command("up")),
    (b"\x1d\x1d", PREFIX),
    (b"\x1b[93;5ud", Command("d")),
    (b"\x1b[200~a\x1b[A\r\x1b[201~b", Pasted("a\x1b[A\r"), Chord("b")),
    (b"\x1b[<0;11;21M\x1b[<0;11;21m", Pointer(10.5, 20.5, 1), Pointer(10.5, 20.5, 0)),
    (b"\x1b[<2;1;1M\x1b[<34;2;1M", Pointer(0.5, 0.5, 4), Pointer(1.5, 0.5, 4)),
    (b"\x1b[<64;1;1M", Pointer(0.5, 0.5, 8), Pointer(0.5, 0.5, 0)),
    (b"\x1b[<35;5;5M", Pointer(4.5, 4.5, 0)),
]


@each("typed", KEYS, ids=lambda typed: repr(typed[0]))
def test_what_is_typed(typed: tuple[bytes, *tuple[Event, ...]]) -> None:
    assert ScreenInput(PREFIX).feed(typed[0]) == list(typed[1:])


@each("typed", KEYS, ids=lambda typed: repr(typed[0]))
def test_what_is_typed_over_a_line_that_cuts_everything(
    typed: tuple[bytes, *tuple[Event, ...]],
) -> None:
    reader = ScreenInput(PREFIX, clock=lambda: 0.0)
    found = [event for code in typed[0] for event in reader.feed(bytes([code]))]
    assert found == list(typed[1:])


def test_escape_is_a_key_once_nothing_follows() -> None:
    now = [0.0]
    reader = ScreenInput(PREFIX, clock=lambda: now[0])
    assert reader.feed(b"\x1b") == [] and reader.waits
    assert reader.tick() == []
    now[0] = 1.0
    assert reader.tick() == [Chord("escape")]
    assert not reader.waits
    assert reader.feed(b"\x1b\x1b[A") == [Chord("escape"), Chord("up")]


def test_a_paste_is_bounded() -> None:
    reader = ScreenInput(PREFIX)
    assert reader.feed(b"\x1b[200~" + b"x" * 10 * PASTE_MAX) == []
    (pasted,) = reader.feed(b"\x1b[201~")
    assert pasted == Pasted("x" * PASTE_MAX)


def test_the_mouse_in_pixels() -> None:
    reader = ScreenInput(PREFIX, mouse_cell=(10, 20))
    assert reader.feed(b"\x1b[<0;16;31M") == [Pointer(1.5, 1.5, 1)]


def test_strokes_have_their_modifiers_around() -> None:
    assert list(strokes(Chord("a"))) == [Stroke(97, True), Stroke(97, False)]
    assert [stroke.keysym for stroke in strokes(Chord("!"))] == [SHIFT, 33, 33, SHIFT]
    chord = Chord("delete", control=True, alt=True)
    down = [stroke.keysym for stroke in strokes(chord) if stroke.down]
    assert down == [CONTROL, ALT, 0xFFFF]
    assert keysym_of("é") == 0xE9 and keysym_of("漢") == 0x1006F22


@each(
    ("wish", "graphics", "in_multiplexer", "way"),
    [
        ("auto", "kitty", False, Way.KITTY),
        ("auto", "sixel", False, Way.SIXEL),
        ("auto", "none", False, Way.HALF),
        ("auto", "sixel", True, Way.HALF),
        ("sixel", "none", True, Way.SIXEL),
    ],
)
def test_the_way_is_what_the_terminal_says_it_knows(
    wish: str, graphics: str, in_multiplexer: bool, way: Way
) -> None:
    assert choose_way(wish, graphics, in_multiplexer=in_multiplexer) is way


@each(
    ("environ", "colours"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, Colours.TRUE),
        ({"TERM": "xterm-256color"}, Colours.INDEXED),
        ({"TERM": "xterm"}, Colours.SIXTEEN),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}, Colours.NONE),
        ({"TERM": "vt100"}, Colours.NONE),
        ({}, Colours.NONE),
    ],
)
def test_the_colours_are_what_the_environment_says(
    environ: dict[str, str], colours: Colours
) -> None:
    assert choose_colours(environ) is colours


def test_what_can_be_wished_is_what_the_command_takes() -> None:
    assert find_verb("view").parameter("graphics").choices == (
        "auto",
        *(way.value for way in Way),
    )


@each(
    ("wish", "graphics", "name", "in_multiplexer", "true_colours", "way"),
    [
        ("auto", "kitty", "kitty(0.40.0)", False, True, Way.KITTY),
        ("auto", "kitty", "ghostty 1.1.0", False, True, Way.KITTY),
        ("auto", "kitty", "WezTerm 20240203", False, True, Way.HALF),
        ("auto", "kitty", "", False, True, Way.HALF),
        ("auto", "sixel", "foot(1.16)", False, True, Way.HALF),
        ("auto", "none", "kitty(0.10)", False, True, Way.HALF),
        ("auto", "kitty", "kitty(0.40.0)", True, True, Way.HALF),
        ("auto", "kitty", "kitty(0.40.0)", False, False, Way.HALF),
        ("half", "kitty", "kitty(0.40.0)", False, True, Way.HALF),
        ("kitty", "none", "", True, True, Way.KITTY),
        ("kitty", "kitty", "kitty(0.40.0)", False, False, Way.HALF),
    ],
)
def test_images_within_text_are_for_terminals_that_are_known_to_show_them(
    wish: str, graphics: str, name: str, in_multiplexer: bool, true_colours: bool, way: Way
) -> None:
    found = choose_way_in_text(
        wish, graphics, name, in_multiplexer=in_multiplexer, true_colours=true_colours
    )
    assert found is way
