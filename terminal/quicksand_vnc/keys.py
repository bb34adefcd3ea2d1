"""The keys of the keyboard, by QEMU's names (QKeyCode, qapi/ui.json), what they type on a US
layout, and their keysyms (X11), by which VNC names them."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from quicksand_vnc.errors import AskedError

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"


class Key(StrEnum):
    """The keys. Every method takes their names, too."""

    A = "a"
    B = "b"
    C = "c"
    D = "d"
    E = "e"
    F = "f"
    G = "g"
    H = "h"
    I = "i"  # noqa: E741
    J = "j"
    K = "k"
    L = "l"
    M = "m"
    N = "n"
    O = "o"  # noqa: E741
    P = "p"
    Q = "q"
    R = "r"
    S = "s"
    T = "t"
    U = "u"
    V = "v"
    W = "w"
    X = "x"
    Y = "y"
    Z = "z"
    N0 = "0"
    N1 = "1"
    N2 = "2"
    N3 = "3"
    N4 = "4"
    N5 = "5"
    N6 = "6"
    N7 = "7"
    N8 = "8"
    N9 = "9"
    KEY_0 = "0"  # as the specification calls them
    KEY_1 = "1"
    KEY_2 = "2"
    KEY_3 = "3"
    KEY_4 = "4"
    KEY_5 = "5"
    KEY_6 = "6"
    KEY_7 = "7"
    KEY_8 = "8"
    KEY_9 = "9"
    SHIFT = "shift"
    SHIFT_R = "shift_r"
    CTRL = "ctrl"
    CTRL_R = "ctrl_r"
    ALT = "alt"
    ALT_R = "alt_r"
    META_L = "meta_l"
    META_R = "meta_r"
    MENU = "menu"
    RET = "ret"
    SPC = "spc"
    TAB = "tab"
    BACKSPACE = "backspace"
    ESC = "esc"
    CAPS_LOCK = "caps_lock"
    NUM_LOCK = "num_lock"
    SCROLL_LOCK = "scroll_lock"
    DELETE = "delete"
    INSERT = "insert"
    HOME = "home"
    END = "end"
    PGUP = "pgup"
    PGDN = "pgdn"
    UP = "up"
    DOWN = "down"
    LEFT = "left"
    RIGHT = "right"
    MINUS = "minus"
    EQUAL = "equal"
    BRACKET_LEFT = "bracket_left"
    BRACKET_RIGHT = "bracket_right"
    BACKSLASH = "backslash"
    SEMICOLON = "semicolon"
    APOSTROPHE = "apostrophe"
    GRAVE_ACCENT = "grave_accent"
    COMMA = "comma"
    DOT = "dot"
    SLASH = "slash"
    LESS = "less"
    PRINT = "print"
    SYSRQ = "sysrq"
    PAUSE = "pause"
    F1 = "f1"
    F2 = "f2"
    F3 = "f3"
    F4 = "f4"
    F5 = "f5"
    F6 = "f6"
    F7 = "f7"
    F8 = "f8"
    F9 = "f9"
    F10 = "f10"
    F11 = "f11"
    F12 = "f12"
    KP_0 = "kp_0"
    KP_1 = "kp_1"
    KP_2 = "kp_2"
    KP_3 = "kp_3"
    KP_4 = "kp_4"
    KP_5 = "kp_5"
    KP_6 = "kp_6"
    KP_7 = "kp_7"
    KP_8 = "kp_8"
    KP_9 = "kp_9"
    KP_DIVIDE = "kp_divide"
    KP_MULTIPLY = "kp_multiply"
    KP_SUBTRACT = "kp_subtract"
    KP_ADD = "kp_add"
    KP_ENTER = "kp_enter"
    KP_DECIMAL = "kp_decimal"
    AUDIOMUTE = "audiomute"
    VOLUMEDOWN = "volumedown"
    VOLUMEUP = "volumeup"


ALIASES: Mapping[str, str] = {
    **{"enter": "ret", "return": "ret", "space": "spc", "escape": "esc", "control": "ctrl"},
    **{"super": "meta_l", "win": "meta_l", "cmd": "meta_l", "meta": "meta_l", "del": "delete"},
    **{"pageup": "pgup", "page_up": "pgup", "pagedown": "pgdn", "page_down": "pgdn"},
    **{"ins": "insert", "option": "alt", "altgr": "alt_r", "capslock": "caps_lock"},
}
"""Other names that people and other programs use for keys."""

_PLAIN = {
    **{"-": "minus", "=": "equal", "[": "bracket_left", "]": "bracket_right", "\\": "backslash"},
    **{";": "semicolon", "'": "apostrophe", "`": "grave_accent", ",": "comma", ".": "dot"},
    **{"/": "slash", " ": "spc", "\n": "ret", "\t": "tab", "\b": "backspace"},
    **{character: character for character in _LETTERS + _DIGITS},
}
_UPPER = dict(zip('_+{}|:"~<>?!@#$%^&*()', "-=[]\\;'`,./1234567890", strict=True))
_SHIFTED = {
    **{upper: _PLAIN[lower] for upper, lower in _UPPER.items()},
    **{character.upper(): character for character in _LETTERS},
}


class Stroke(NamedTuple):
    """How a character is typed."""

    key: str
    shift: bool


STROKES: Mapping[str, Stroke] = {
    **{character: Stroke(key, False) for character, key in _PLAIN.items()},
    **{character: Stroke(key, True) for character, key in _SHIFTED.items()},
}
"""Every character of the US layout, and line feed (Return), tab and backspace."""


NAMES = "keys are called as in QEMU: a to z, 0 to 9, ret, spc, esc, ctrl, shift, f1 …"


JOINERS = "\u200c\u200d"
"""Invisible characters that join others to emoji and to words of some scripts."""


def can_be_typed(character: str) -> bool:
    """Whether there is a key for a character, or can be one on a keyboard that takes any."""
    return character in STROKES or character in JOINERS or character.isprintable()


def parse_key(name: str) -> str:
    """Return QEMU's name of a key, given by that name (in any case), a usual other name, or the
    character on the key, as in "ret", "Enter", "a", ";". Raises AskedError."""
    text = str(name)
    if (key := _find_key(text)) is not None:
        return key
    if together := together_of(text):
        words = ", ".join(f'"{key}"' for key in together)
        raise AskedError(
            f"{text!r} is no key", hint=f"keys that are pressed together: press_key({words})"
        )
    near = difflib.get_close_matches(text.lower(), [*map(str, Key), *ALIASES], n=1)
    raise AskedError(
        f"{text!r} is no key" + (f"; did you mean {near[0]!r}?" if near else ""), hint=NAMES
    )


def _find_key(text: str) -> str | None:
    if len(text) == 1 and text.lower() in _PLAIN:
        return _PLAIN[text.lower()]
    lower = text.lower().replace("-", "_")
    lower = ALIASES.get(lower, lower)
    return lower if lower in set(Key) else None


def together_of(text: str) -> tuple[str, ...]:
    """Return the keys that produce ``text``, which is not a key: ("ctrl", "c") for "ctrl-c" and
    "ctrl+c", ("shift", "equal") for "+". () if there are none."""
    if text in _SHIFTED:
        return "shift", _SHIFTED[text]
    found = [_find_key(part) for part in text.replace("-", "+").split("+")]
    keys = tuple(key for key in found if key is not None)
    return keys if len(keys) == len(found) > 1 else ()


def parse_keys(names: Sequence[str]) -> tuple[str, ...]:
    """Return QEMU's names for several keys, each once, in their order. Raises AskedError."""
    if not names:
        raise AskedError("no key is named", hint='as in press_key("ctrl", "c")')
    return tuple(dict.fromkeys(parse_key(name) for name in names))


_KEYSYMS: Mapping[str, int] = {
    **{"ret": 0xFF0D, "spc": 0x20, "tab": 0xFF09, "backspace": 0xFF08, "esc": 0xFF1B},
    **{"shift": 0xFFE1, "shift_r": 0xFFE2, "ctrl": 0xFFE3, "ctrl_r": 0xFFE4, "alt": 0xFFE9},
    **{"alt_r": 0xFFEA, "meta_l": 0xFFEB, "meta_r": 0xFFEC, "menu": 0xFF67, "pause": 0xFF13},
    **{"caps_lock": 0xFFE5, "num_lock": 0xFF7F, "scroll_lock": 0xFF14, "print": 0xFF61},
    **{"delete": 0xFFFF, "insert": 0xFF63, "home": 0xFF50, "end": 0xFF57, "pgup": 0xFF55},
    **{"pgdn": 0xFF56, "left": 0xFF51, "up": 0xFF52, "right": 0xFF53, "down": 0xFF54},
    **{"sysrq": 0xFF15, "kp_enter": 0xFF8D, "kp_multiply": 0xFFAA, "kp_add": 0xFFAB},
    **{"kp_subtract": 0xFFAD, "kp_decimal": 0xFFAE, "kp_divide": 0xFFAF, "less": ord("<")},
    **{"volumedown": 0x1008FF11, "audiomute": 0x1008FF12, "volumeup": 0x1008FF13},
    **{f"f{number}": 0xFFBD + number for number in range(1, 13)},
    **{f"kp_{digit}": 0xFFB0 + digit for digit in range(10)},
}
"""Keys that no character of a US layout names (X11, keysymdef.h and XF86keysym.h)."""

_UNICODE = 0x0100_0000
"""Added to the code point of a character beyond Latin-1 (X protocol, appendix A)."""


def keysym_of_key(key: str) -> int:
    """Return the keysym of a key, given by QEMU's name of it."""
    if key in _KEYSYMS:
        return _KEYSYMS[key]
    return ord(next(character for character, name in _PLAIN.items() if name == key))


def keysym_of(character: str) -> int:
    """Return the keysym of a character."""
    if character in "\n\t\b":
        return _KEYSYMS[_PLAIN[character]]
    return ord(character) if ord(character) < 0x100 else _UNICODE + ord(character)
