"""Keys as the bytes that a terminal sends for them, by xterm's ctlseqs ("PC-Style Function Keys",
"Alt and Meta Keys") and terminfo's xterm-256color."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from quicksand_tui.terminal.modes import Modes

_SHIFT, _ALT, _CTRL, _META = 1, 2, 4, 8
_MODIFIERS: Final = {"shift": _SHIFT, "alt": _ALT, "ctrl": _CTRL, "meta": _META, "super": _META}

_CURSOR_KEYS: Final = {
    **{"up": "A", "down": "B", "right": "C", "left": "D"},
    **{"home": "H", "end": "F"},
}
"""CSI or SS3 and a letter."""

_PF_KEYS: Final = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
"""SS3 and a letter; with modifiers, CSI."""

_TILDE_KEYS: Final = {
    **{"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6},
    **{"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24},
}
"""CSI, a number and ``~``."""

_CONTROL_KEYS: Final = {"enter": "\r", "return": "\r", "tab": "\t", "escape": "\x1b"}

_KEYPAD: Final = {
    **{f"kp_{n}": (str(n), chr(ord("p") + n)) for n in range(10)},
    **{"kp_enter": ("\r", "M"), "kp_plus": ("+", "k"), "kp_minus": ("-", "m")},
    **{"kp_multiply": ("*", "j"), "kp_divide": ("/", "o"), "kp_decimal": (".", "n")},
    **{"kp_separator": (",", "l"), "kp_equal": ("=", "X")},
}
"""What is sent, and what is sent behind SS3 in application mode."""

_NAMES: Final = {
    **{"space": " ", "slash": "/", "backslash": "\\", "at": "@", "minus": "-", "plus": "+"},
    **{"underscore": "_", "less_than_sign": "<", "greater_than_sign": ">"},
}
"""Characters whose key does not have Unicode's name, or not with its hyphens."""

_CONTROLS: Final = {
    **{chr(code): chr(code & 31) for code in range(ord("a"), ord("z") + 1)},
    **{"@": "\x00", " ": "\x00", "2": "\x00", "[": "\x1b", "3": "\x1b", "\\": "\x1c"},
    **{"4": "\x1c", "]": "\x1d", "5": "\x1d", "^": "\x1e", "6": "\x1e", "~": "\x1e"},
    **{"_": "\x1f", "/": "\x1f", "7": "\x1f", "?": "\x7f", "8": "\x7f"},
}
"""What Ctrl makes of a character."""


def encode_key(key: str, modes: Modes, character: str | None = None) -> bytes:
    """The bytes for a key; none for one that has none.

    ``key`` is a name as Textual has them: modifiers before it (``ctrl+shift+left``), letters and
    digits as they are, other characters by name (``question_mark``) or as they are; ``kp_0`` and
    its like for the keypad. ``character`` is what the key types, where that is known.
    """
    modifiers, name = _split(key)
    if name in _CURSOR_KEYS:
        introducer = "O" if modes.application_cursor else "["
        return _lettered(_CURSOR_KEYS[name], modifiers, introducer)
    if name.startswith("f") and name[1:].isdecimal():
        modifiers, name = _function_key(modifiers, int(name[1:]))
    if name in _PF_KEYS:
        return _lettered(_PF_KEYS[name], modifiers, "O")
    if name in _TILDE_KEYS:
        number = _TILDE_KEYS[name]
        return _bytes(f"\x1b[{number};{modifiers + 1}~" if modifiers else f"\x1b[{number}~")
    if name in _KEYPAD:
        plain, application = _KEYPAD[name]
        return _bytes(f"\x1bO{application}" if modes.application_keypad else plain)
    if name in ("enter", "return", "tab", "escape", "backspace"):
        return _control_key(name, modifiers, modes)
    typed = character if character and character.isprintable() else _character(name)
    return _typed(typed, modifiers, modes) if typed else b""


def _split(key: str) -> tuple[int, str]:
    """Modifiers as bits, and the name without them."""
    *words, name = key.split("+") if not key.endswith("+") else [*key[:-1].split("+")[:-1], "+"]
    modifiers = 0
    for word in words:
        modifiers |= _MODIFIERS.get(word, 0)
    return modifiers, name


def _function_key(modifiers: int, number: int) -> tuple[int, str]:
    """F13 to F24 are F1 to F12 with Shift, F25 to F36 with Ctrl, as terminfo has it."""
    if 13 <= number <= 36:
        modifiers |= _SHIFT if number <= 24 else _CTRL
        number = (number - 1) % 12 + 1
    return modifiers, f"f{number}"


def _lettered(letter: str, modifiers: int, introducer: str) -> bytes:
    return _bytes(f"\x1b[1;{modifiers + 1}{letter}" if modifiers else f"\x1b{introducer}{letter}")


def _control_key(name: str, modifiers: int, modes: Modes) -> bytes:
    """Enter, Tab, Escape, Backspace."""
    if name == "tab" and modifiers == _SHIFT and modes.modify_other_keys < 2:
        return b"\x1b[Z"
    backspace = "\b" if modes.backspace_sends_bs else "\x7f"
    plain = backspace if name == "backspace" else _CONTROL_KEYS[name]
    told = modifiers & ~_ALT if modes.modify_other_keys == 1 else modifiers
    if modes.modify_other_keys and told:
        return _other(plain, modifiers, modes)
    if name == "backspace" and modifiers & _CTRL:
        plain = "\x7f" if modes.backspace_sends_bs else "\b"
    elif plain == "\r" and modes.newline:
        plain = "\r\n"
    return _bytes(f"\x1b{plain}" if modifiers & (_ALT | _META) else plain)


def _character(name: str) -> str:
    """The character that a key is named after; empty if there is none."""
    if len(name) == 1:
        return name
    if name in _NAMES:
        return _NAMES[name]
    if name.startswith("upper_") and len(name) == 7:
        return name[-1].upper()
    try:
        return unicodedata.lookup(name.replace("_", " "))
    except KeyError:
        return ""


def _typed(char: str, modifiers: int, modes: Modes) -> bytes:
    """A character, with what the modifiers make of it."""
    control = _CONTROLS.get(char.lower()) if modifiers & _CTRL else None
    others = modifiers & ~_SHIFT
    if others and len(char) == 1 and modes.modify_other_keys:
        lost = modifiers & _CTRL and (control is None or modifiers & _SHIFT)
        if modes.modify_other_keys == 2 or lost:
            return _other(char, modifiers, modes)
    sent = char if control is None else control
    return _bytes(f"\x1b{sent}" if modifiers & (_ALT | _META) else sent)


def _other(char: str, modifiers: int, modes: Modes) -> bytes:
    """modifyOtherKeys, in either of its formats."""
    if modes.format_other_keys:
        return _bytes(f"\x1b[{ord(char)};{modifiers + 1}u")
    return _bytes(f"\x1b[27;{modifiers + 1};{ord(char)}~")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")
