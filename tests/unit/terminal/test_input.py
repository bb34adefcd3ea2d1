"""Keys, mouse, paste and focus as bytes."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from quicksand_vt import MouseAction, MouseButton, MouseEvent
from textual.keys import Keys

from tests.each import each
from tests.unit.terminal.cases import make_terminal

KEYS = {
    "a": "a",
    "A": "A",
    "upper_a": "A",
    "é": "é",
    "space": " ",
    "question_mark": "?",
    "slash": "/",
    "plus": "+",
    "less_than_sign": "<",
    "dollar_sign": "$",
    "+": "+",
    "ctrl++": "+",
    "ctrl+a": "\x01",
    "ctrl+A": "\x01",
    "ctrl+z": "\x1a",
    "ctrl+space": "\x00",
    "ctrl+at": "\x00",
    "ctrl+left_square_bracket": "\x1b",
    "ctrl+backslash": "\x1c",
    "ctrl+right_square_bracket": "\x1d",
    "ctrl+circumflex_accent": "\x1e",
    "ctrl+underscore": "\x1f",
    "ctrl+slash": "\x1f",
    "ctrl+8": "\x7f",
    "alt+b": "\x1bb",
    "alt+ctrl+b": "\x1b\x02",
    "alt+é": "\x1bé",
    "enter": "\r",
    "alt+enter": "\x1b\r",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "escape": "\x1b",
    "alt+escape": "\x1b\x1b",
    "backspace": "\x7f",
    "ctrl+backspace": "\b",
    "alt+backspace": "\x1b\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "shift+up": "\x1b[1;2A",
    "alt+left": "\x1b[1;3D",
    "ctrl+left": "\x1b[1;5D",
    "ctrl+shift+right": "\x1b[1;6C",
    "ctrl+alt+shift+end": "\x1b[1;8F",
    "insert": "\x1b[2~",
    "delete": "\x1b[3~",
    "ctrl+delete": "\x1b[3;5~",
    "pageup": "\x1b[5~",
    "shift+pagedown": "\x1b[6;2~",
    "f1": "\x1bOP",
    "f4": "\x1bOS",
    "ctrl+f1": "\x1b[1;5P",
    "f5": "\x1b[15~",
    "f12": "\x1b[24~",
    "shift+f5": "\x1b[15;2~",
    "f13": "\x1b[1;2P",
    "f17": "\x1b[15;2~",
    "f24": "\x1b[24;2~",
    "f25": "\x1b[1;5P",
    "f99": "",
    "kp_5": "5",
    "kp_enter": "\r",
    "kp_plus": "+",
    "no_such_key": "",
    "": "",
}

OTHER_KEYS = {
    # Mode: what turns it on, and what comes then.
    b"\x1b[?1h": {"up": "\x1bOA", "home": "\x1bOH", "ctrl+up": "\x1b[1;5A", "f5": "\x1b[15~"},
    b"\x1b=": {
        "kp_5": "\x1bOu",
        "kp_enter": "\x1bOM",
        "kp_plus": "\x1bOk",
        "5": "5",
        "up": "\x1b[A",
    },
    b"\x1b[?67h": {"backspace": "\b", "ctrl+backspace": "\x7f"},
    b"\x1b[20h": {"enter": "\r\n", "alt+enter": "\x1b\r\n"},
    b"\x1b[>4;1m": {
        "a": "a",
        "ctrl+a": "\x01",
        "alt+b": "\x1bb",
        "tab": "\t",
        "shift+tab": "\x1b[Z",
        "ctrl+enter": "\x1b[27;5;13~",
        "shift+enter": "\x1b[27;2;13~",
        "alt+enter": "\x1b\r",
        "ctrl+comma": "\x1b[27;5;44~",
        "ctrl+shift+a": "\x1b[27;6;97~",
        "ctrl+left": "\x1b[1;5D",
    },
    b"\x1b[>4;2m": {
        "a": "a",
        "A": "A",
        "shift+a": "a",
        "ctrl+a": "\x1b[27;5;97~",
        "ctrl+i": "\x1b[27;5;105~",
        "tab": "\t",
        "alt+b": "\x1b[27;3;98~",
        "shift+tab": "\x1b[27;2;9~",
        "shift+enter": "\x1b[27;2;13~",
        "ctrl+backspace": "\x1b[27;5;127~",
        "escape": "\x1b",
        "f1": "\x1bOP",
    },
    b"\x1b[>4;2m\x1b[>4;1f": {"ctrl+i": "\x1b[105;5u", "shift+enter": "\x1b[13;2u", "a": "a"},
}


@each("key", KEYS)
def test_keys(key: str) -> None:
    assert make_terminal().encode_key(key) == KEYS[key].encode()


@each(("mode", "key"), [(mode, key) for mode, keys in OTHER_KEYS.items() for key in keys])
def test_keys_in_other_modes(mode: bytes, key: str) -> None:
    terminal = make_terminal()
    terminal.feed(mode)
    assert terminal.encode_key(key) == OTHER_KEYS[mode][key].encode()


def test_the_character_of_a_key_is_what_is_typed() -> None:
    terminal = make_terminal()
    assert terminal.encode_key("shift+a", "A") == b"A"
    assert terminal.encode_key("something_new", "ß") == "ß".encode()
    assert terminal.encode_key("tab", "\t") == b"\t"
    assert terminal.encode_key("ctrl+a", "\x01") == b"\x01"


def test_every_key_that_textual_has_sends_something() -> None:
    terminal = make_terminal()
    silent = {key.value for key in Keys if not terminal.encode_key(key.value)}
    assert silent == {"<any>", "<scroll-up>", "<scroll-down>", "<ignore>", "ctrl-at"}


@given(key=st.text(max_size=20), character=st.none() | st.text(max_size=2))
def test_any_name_of_a_key_is_taken(key: str, character: str | None) -> None:
    make_terminal().encode_key(key, character)


# The mouse

PRESS, RELEASE, MOVE = MouseAction.PRESS, MouseAction.RELEASE, MouseAction.MOVE
LEFT, NONE, WHEEL_UP = MouseButton.LEFT, MouseButton.NONE, MouseButton.WHEEL_UP


def mouse(
    modes: bytes,
    action: MouseAction,
    button: MouseButton,
    x: int = 2,
    y: int = 1,
    **modifiers: bool,
) -> bytes:
    terminal = make_terminal()
    terminal.feed(modes)
    return terminal.encode_mouse(MouseEvent(action=action, button=button, x=x, y=y, **modifiers))


@each(
    ("modes", "action", "button", "expected"),
    [
        (b"", PRESS, LEFT, b""),
        (b"\x1b[?9h", PRESS, LEFT, b'\x1b[M #"'),
        (b"\x1b[?9h", RELEASE, LEFT, b""),
        (b"\x1b[?9h", PRESS, WHEEL_UP, b""),
        (b"\x1b[?1000h", PRESS, LEFT, b'\x1b[M #"'),
        (b"\x1b[?1000h", RELEASE, LEFT, b'\x1b[M##"'),
        (b"\x1b[?1000h", MOVE, LEFT, b""),
        (b"\x1b[?1000h", PRESS, WHEEL_UP, b'\x1b[M`#"'),
        (b"\x1b[?1000h", RELEASE, WHEEL_UP, b""),
        (b"\x1b[?1000h", PRESS, NONE, b""),
        (b"\x1b[?1002h", MOVE, LEFT, b'\x1b[M@#"'),
        (b"\x1b[?1002h", MOVE, NONE, b""),
        (b"\x1b[?1003h", MOVE, NONE, b'\x1b[MC#"'),
        (b"\x1b[?1000;1006h", PRESS, LEFT, b"\x1b[<0;3;2M"),
        (b"\x1b[?1000;1006h", RELEASE, LEFT, b"\x1b[<0;3;2m"),
        (b"\x1b[?1000;1006h", PRESS, MouseButton.WHEEL_DOWN, b"\x1b[<65;3;2M"),
        (b"\x1b[?1000;1006h", PRESS, MouseButton.BACK, b"\x1b[<128;3;2M"),
        (b"\x1b[?1003;1006h", MOVE, NONE, b"\x1b[<35;3;2M"),
        (b"\x1b[?1000;1015h", PRESS, LEFT, b"\x1b[32;3;2M"),
        (b"\x1b[?1000;1015h", RELEASE, LEFT, b"\x1b[35;3;2M"),
        (b"\x1b[?1000;1005h", PRESS, LEFT, b'\x1b[M #"'),
    ],
)
def test_the_mouse(modes: bytes, action: MouseAction, button: MouseButton, expected: bytes) -> None:
    assert mouse(modes, action, button) == expected


def test_modifiers_of_the_mouse() -> None:
    modes = b"\x1b[?1000;1006h"
    assert mouse(modes, PRESS, LEFT, shift=True, alt=True, ctrl=True) == b"\x1b[<28;3;2M"
    assert mouse(b"\x1b[?9h", PRESS, LEFT, ctrl=True) == b'\x1b[M #"'


def test_places_that_an_encoding_cannot_tell_are_not_told() -> None:
    assert mouse(b"\x1b[?1000h", PRESS, LEFT, x=222) == b'\x1b[M \xff"'
    assert mouse(b"\x1b[?1000h", PRESS, LEFT, x=223) == b""
    assert mouse(b"\x1b[?1000;1005h", PRESS, LEFT, x=300) == '\x1b[M \u014d"'.encode()
    assert mouse(b"\x1b[?1000;1005h", PRESS, LEFT, x=2015) == b""
    assert mouse(b"\x1b[?1000;1006h", PRESS, LEFT, x=5000) == b"\x1b[<0;5001;2M"
    assert mouse(b"\x1b[?1000;1006h", PRESS, LEFT, x=-1) == b""


def test_the_wheel_sends_arrows_on_the_alternate_screen() -> None:
    down = MouseButton.WHEEL_DOWN
    assert mouse(b"\x1b[?1049h", PRESS, WHEEL_UP) == b"\x1b[A" * 3
    assert mouse(b"\x1b[?1049h\x1b[?1h", PRESS, down) == b"\x1bOB" * 3
    assert mouse(b"\x1b[?1049h\x1b[?1007l", PRESS, down) == b""
    assert mouse(b"\x1b[?1049h", PRESS, LEFT) == b""
    assert mouse(b"", PRESS, WHEEL_UP) == b""


# Paste and focus


def test_paste() -> None:
    terminal = make_terminal()
    assert terminal.encode_paste("a\nb\r\nc\td é") == "a\rb\rc\td é".encode()
    terminal.feed(b"\x1b[?2004h")
    assert terminal.encode_paste("a\nb") == b"\x1b[200~a\rb\x1b[201~"


@each("text", ["a\x1b[201~b", "a\x1b[2\x1b[201~01~b", "a\x9b201~b", "a\x00\x08\x7fb"])
def test_a_pasted_text_cannot_end_the_paste(text: str) -> None:
    terminal = make_terminal()
    terminal.feed(b"\x1b[?2004h")
    data = terminal.encode_paste(text)
    assert not re.search(rb"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]", data[6:-6])
    assert data.endswith(b"b\x1b[201~")


@given(text=st.text())
def test_any_text_can_be_pasted(text: str) -> None:
    terminal = make_terminal()
    terminal.feed(b"\x1b[?2004h")
    data = terminal.encode_paste(text)
    assert data.count(b"\x1b") == 2
    assert b"\xc2\x9b" not in data


def test_focus() -> None:
    terminal = make_terminal()
    assert terminal.encode_focus(True) == b""
    terminal.feed(b"\x1b[?1004h")
    assert terminal.encode_focus(True) == b"\x1b[I"
    assert terminal.encode_focus(False) == b"\x1b[O"
