"""Encodes keys, the mouse and pasted text as bytes for the program in a terminal."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from quicksand_vt.modes import Modes, MouseEncoding, MouseTracking

_SHIFT, _ALT, _CTRL, _META = 1, 2, 4, 8
_MODIFIERS: Final = {"shift": _SHIFT, "alt": _ALT, "ctrl": _CTRL, "meta": _META, "super": _META}

_CURSOR_KEYS: Final = {
    **{"up": "A", "down": "B", "right": "C", "left": "D"},
    **{"home": "H", "end": "F"},
}
"""Sent as CSI or SS3 and a letter."""

_PF_KEYS: Final = {"f1": "P", "f2": "Q", "f3": "R", "f4": "S"}
"""Sent as SS3 and a letter; with modifiers as CSI."""

_TILDE_KEYS: Final = {
    **{"insert": 2, "delete": 3, "pageup": 5, "pagedown": 6},
    **{"f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24},
}
"""Sent as CSI, a number and ``~``."""

_CONTROL_KEYS: Final = {"enter": "\r", "return": "\r", "tab": "\t", "escape": "\x1b"}

_KEYPAD: Final = {
    **{f"kp_{n}": (str(n), chr(ord("p") + n)) for n in range(10)},
    **{"kp_enter": ("\r", "M"), "kp_plus": ("+", "k"), "kp_minus": ("-", "m")},
    **{"kp_multiply": ("*", "j"), "kp_divide": ("/", "o"), "kp_decimal": (".", "n")},
    **{"kp_separator": (",", "l"), "kp_equal": ("=", "X")},
}
"""The character that a key sends, and the one that it sends after SS3 in application mode."""

_NAMES: Final = {
    **{"space": " ", "slash": "/", "backslash": "\\", "at": "@", "minus": "-", "plus": "+"},
    **{"underscore": "_", "less_than_sign": "<", "greater_than_sign": ">"},
}
"""Characters whose name of a key does not lead back to Unicode's name."""

_CONTROLS: Final = {
    **{chr(code): chr(code & 31) for code in range(ord("a"), ord("z") + 1)},
    **{"@": "\x00", " ": "\x00", "2": "\x00", "[": "\x1b", "3": "\x1b", "\\": "\x1c"},
    **{"4": "\x1c", "]": "\x1d", "5": "\x1d", "^": "\x1e", "6": "\x1e", "~": "\x1e"},
    **{"_": "\x1f", "/": "\x1f", "7": "\x1f", "?": "\x7f", "8": "\x7f"},
}
"""The control character that Ctrl with a character sends."""


def encode_key(key: str, modes: Modes, character: str | None = None) -> bytes:
    """Returns the bytes for a key; none for an unknown one.

    ``key`` is a name as in Textual, a UI library: modifiers first (``ctrl+shift+left``), letters
    and digits as they are, other characters by name (``question_mark``) or as they are; keys of the
    keypad are ``kp_0`` and the like. ``character`` is what the key types, if known.
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


_APPLICATION: Final = {
    b"\x1b[" + letter: b"\x1bO" + letter for letter in (b"A", b"B", b"C", b"D", b"H", b"F")
}


def for_application(data: bytes) -> bytes:
    """Converts cursor keys to application mode (DECCKM), which the user's terminal does not use."""
    if b"\x1b[" not in data:
        return data
    for usual, application in _APPLICATION.items():
        data = data.replace(usual, application)
    return data


def encode_code(code: int, modifiers: int, modes: Modes) -> bytes:
    """Returns the bytes for the key that types the character ``code``, or sends that control
    character (Enter, Tab, Escape, Backspace). ``modifiers``: 1 for Shift, 2 for Alt, 4 for Ctrl."""
    name = {13: "enter", 9: "tab", 27: "escape", 127: "backspace"}.get(code)
    if name is not None:
        return _control_key(name, modifiers, modes)
    return _typed(chr(code), modifiers, modes)


def _split(key: str) -> tuple[int, str]:
    """Returns the modifiers as bits, and the name without them."""
    *words, name = key.split("+") if not key.endswith("+") else [*key[:-1].split("+")[:-1], "+"]
    modifiers = 0
    for word in words:
        modifiers |= _MODIFIERS.get(word, 0)
    return modifiers, name


def _function_key(modifiers: int, number: int) -> tuple[int, str]:
    """Turns F13 to F24 into F1 to F12 with Shift, and F25 to F36 into Ctrl, as in terminfo."""
    if 13 <= number <= 36:
        modifiers |= _SHIFT if number <= 24 else _CTRL
        number = (number - 1) % 12 + 1
    return modifiers, f"f{number}"


def _lettered(letter: str, modifiers: int, introducer: str) -> bytes:
    return _bytes(f"\x1b[1;{modifiers + 1}{letter}" if modifiers else f"\x1b{introducer}{letter}")


def _control_key(name: str, modifiers: int, modes: Modes) -> bytes:
    """Encodes Enter, Tab, Escape and Backspace."""
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
    """Returns the character that a key is named after, or ""."""
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
    """Encodes a character with modifiers."""
    control = _CONTROLS.get(char.lower()) if modifiers & _CTRL else None
    others = modifiers & ~_SHIFT
    if others and len(char) == 1 and modes.modify_other_keys:
        lost = modifiers & _CTRL and (control is None or modifiers & _SHIFT)
        if modes.modify_other_keys == 2 or lost:
            return _other(char, modifiers, modes)
    sent = char if control is None else control
    return _bytes(f"\x1b{sent}" if modifiers & (_ALT | _META) else sent)


def _other(char: str, modifiers: int, modes: Modes) -> bytes:
    """Encodes a key for modifyOtherKeys, in either of its formats."""
    if modes.format_other_keys:
        return _bytes(f"\x1b[{ord(char)};{modifiers + 1}u")
    return _bytes(f"\x1b[27;{modifiers + 1};{ord(char)}~")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


WHEEL_LINES: Final = 3
"""How many arrow keys a step of the wheel sends on the alternate screen, as in VTE."""


class MouseAction(Enum):
    PRESS = "press"
    """A button, or one step of the wheel."""
    RELEASE = "release"
    MOVE = "move"


class MouseButton(IntEnum):
    """Buttons by their code in reports."""

    LEFT = 0
    MIDDLE = 1
    RIGHT = 2
    NONE = 3
    """The code of motion with no button held."""
    WHEEL_UP = 64
    WHEEL_DOWN = 65
    WHEEL_LEFT = 66
    WHEEL_RIGHT = 67
    BACK = 128
    FORWARD = 129


@dataclass(frozen=True, slots=True, kw_only=True)
class MouseEvent:
    """A mouse event at a cell of the screen; ``x`` and ``y`` count from 0."""

    action: MouseAction
    button: MouseButton = MouseButton.NONE
    x: int
    y: int
    shift: bool = False
    alt: bool = False
    ctrl: bool = False


_MOTION: Final = 32
_X10_MAX: Final = 255
_UTF8_MAX: Final = 2047
"""The largest numbers that the encodings can write: a byte, and two bytes of UTF-8."""


def encode_mouse(event: MouseEvent, modes: Modes, *, alternate: bool) -> bytes:
    """Returns the bytes for an event; none if the program does not want it. The caller drops motion
    within one cell."""
    if modes.mouse_tracking is MouseTracking.OFF:
        return _wheel_as_arrows(event, modes) if alternate else b""
    if not _is_wanted(event, modes.mouse_tracking):
        return b""
    code = int(event.button)
    if event.action is MouseAction.RELEASE and modes.mouse_encoding is not MouseEncoding.SGR:
        code = MouseButton.NONE
    if event.action is MouseAction.MOVE:
        code += _MOTION
    if modes.mouse_tracking is not MouseTracking.X10:
        code += 4 * event.shift + 8 * event.alt + 16 * event.ctrl
    is_release = event.action is MouseAction.RELEASE
    return _report(code, event.x + 1, event.y + 1, modes.mouse_encoding, is_release=is_release)


def _is_wanted(event: MouseEvent, tracking: MouseTracking) -> bool:
    if event.x < 0 or event.y < 0:
        return False
    if tracking is MouseTracking.X10:
        return event.action is MouseAction.PRESS and event.button <= MouseButton.RIGHT
    if event.action is MouseAction.MOVE:
        held = event.button is not MouseButton.NONE
        return tracking is MouseTracking.ANY or (held and tracking is MouseTracking.BUTTON)
    if event.action is MouseAction.RELEASE:
        return not MouseButton.WHEEL_UP <= event.button <= MouseButton.WHEEL_RIGHT
    return event.button is not MouseButton.NONE


def _report(code: int, x: int, y: int, encoding: MouseEncoding, *, is_release: bool) -> bytes:
    if encoding is MouseEncoding.SGR:
        return f"\x1b[<{code};{x};{y}{'m' if is_release else 'M'}".encode()
    if encoding is MouseEncoding.URXVT:
        return f"\x1b[{code + 32};{x};{y}M".encode()
    numbers = (code + 32, x + 32, y + 32)
    if max(numbers) > (_UTF8_MAX if encoding is MouseEncoding.UTF8 else _X10_MAX):
        return b""
    if encoding is MouseEncoding.UTF8:
        return b"\x1b[M" + "".join(map(chr, numbers)).encode()
    return b"\x1b[M" + bytes(numbers)


def _wheel_as_arrows(event: MouseEvent, modes: Modes) -> bytes:
    if not modes.alternate_scroll or event.action is not MouseAction.PRESS:
        return b""
    letters = {MouseButton.WHEEL_UP: b"A", MouseButton.WHEEL_DOWN: b"B"}
    if event.button not in letters:
        return b""
    introducer = b"\x1bO" if modes.application_cursor else b"\x1b["
    return (introducer + letters[event.button]) * WHEEL_LINES


_START: Final = b"\x1b[200~"
_END: Final = b"\x1b[201~"

_UNPASTED: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""All control characters except tab, line feed and carriage return."""


def encode_paste(text: str, *, bracketed: bool) -> bytes:
    """Encodes a pasted text; line ends become CR, as Enter sends. Control characters are dropped:
    with ESC, a text could end the brackets, and without brackets press any key."""
    lines = text.replace("\r\n", "\n").replace("\n", "\r")
    data = _UNPASTED.sub("", lines).encode("utf-8", "replace")
    return _START + data + _END if bracketed else data
