"""Kitty's keyboard protocol: a program's flags, and keys in the form that they ask for
(https://sw.kovidgoyal.net/kitty/keyboard-protocol/).

A program can distinguish keys that otherwise send the same bytes (flag 1), and learn which
character a key types with Shift (flag 4). The other flags are not honoured, as the answer to its
query shows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from quicksand_vt.input_encoding import encode_code, for_application

if TYPE_CHECKING:
    from quicksand_vt.modes import Modes

DISAMBIGUATE: Final = 1
ALTERNATE: Final = 4
SUPPORTED: Final = DISAMBIGUATE | ALTERNATE

STACK_MAX: Final = 16
"""Settings that a screen keeps; the oldest goes when there are more."""

SHIFT, ALT, CTRL = 1, 2, 4
_LOCKS: Final = 64 | 128
"""Caps Lock and Num Lock, which change no key here."""


class Keyboard:
    """The flags that a program asked for on one screen: the main and the alternate one each have a
    stack."""

    def __init__(self) -> None:
        self._stack = [0]

    @property
    def flags(self) -> int:
        return self._stack[-1]

    def push(self, flags: int) -> None:
        self._stack = [*self._stack, flags & SUPPORTED][-STACK_MAX:]

    def pop(self, count: int) -> None:
        """Drops the last ``count`` settings; without any the keyboard is as at the start."""
        self._stack = self._stack[: max(0, len(self._stack) - count)] or [0]

    def change(self, flags: int, how: int) -> None:
        """Sets all flags (``how`` 1), adds these (2), or removes them (3)."""
        before = self._stack[-1]
        after = {1: flags, 2: before | flags, 3: before & ~flags}.get(how, before)
        self._stack[-1] = after & SUPPORTED


class Key(NamedTuple):
    """A key as the protocol describes it."""

    code: int
    """The character that it types alone, or a number of its own."""
    shifted: int
    """The character that it types with Shift; 0 if not given."""
    modifiers: int
    is_release: bool


_KEY: Final = re.compile(
    rb"\x1b\[(\d{1,7})(?::(\d{0,7})(?::\d{0,7})?)?(?:;(\d{0,3})(?::(\d))?(?:;[\d:]*)?)?u"
)
"""``CSI code:shifted:base ; modifiers:event ; text u``."""

_KEYPAD: Final = {
    **{57399 + digit: str(digit) for digit in range(10)},
    **dict(zip(range(57409, 57417), (".", "/", "*", "-", "+", "\r", "=", ","), strict=True)),
    **{57417: "\x1b[D", 57418: "\x1b[C", 57419: "\x1b[A", 57420: "\x1b[B", 57421: "\x1b[5~"},
    **{57422: "\x1b[6~", 57423: "\x1b[H", 57424: "\x1b[F", 57425: "\x1b[2~", 57426: "\x1b[3~"},
}
"""The keys of the keypad, and the bytes that they send without the protocol."""

_OWN_NUMBERS: Final = range(57344, 63744)
"""Unicode's private use area, where keys without a character have their numbers."""

_ENTER, _TAB, _BACKSPACE, _ESCAPE = 13, 9, 127, 27


def read_key(token: bytes) -> Key | None:
    """Returns the key that a sequence describes; None for other sequences."""
    if (match := _KEY.fullmatch(token)) is None:
        return None
    code, shifted, modifiers, event = (int(part or 0) for part in match.groups())
    held = max(0, modifiers - 1) & ~_LOCKS
    return Key(min(code, 0x10FFFF), min(shifted, 0x10FFFF), held, event == 3)


def plainly(key: Key, modes: Modes) -> bytes:
    """Returns the bytes of a key for a program that has made no requests; none for a key that only
    the protocol has."""
    if key.is_release or key.modifiers & ~(SHIFT | ALT | CTRL):
        return b""
    if key.code in _KEYPAD:
        return _KEYPAD[key.code].encode()
    if key.code in _OWN_NUMBERS:
        return b""
    return encode_code(_typed(key), key.modifiers, modes)


def _typed(key: Key) -> int:
    """Returns the character that a key types, with Shift if that is held."""
    if not key.modifiers & SHIFT:
        return key.code
    upper = chr(key.code).upper()
    return key.shifted or (ord(upper) if len(upper) == 1 else key.code)


def _told(key: Key, flags: int) -> bytes:
    """Returns a key in the protocol's form, as far as ``flags`` ask for it. Keys that type text,
    and Enter, Tab and Backspace alone, send the same as without the protocol."""
    if key.is_release:
        return b""
    types_text = not key.modifiers & ~SHIFT and key.code not in (*_OWN_NUMBERS, _ESCAPE)
    if types_text and key.code not in (_ENTER, _TAB, _BACKSPACE):
        return chr(_typed(key)).encode("utf-8", "replace")
    if not key.modifiers and key.code in (_ENTER, _TAB, _BACKSPACE):
        return bytes([key.code])
    shifted = f":{key.shifted}" if key.shifted and flags & ALTERNATE else ""
    modifiers = f";{key.modifiers + 1}" if key.modifiers else ""
    return f"\x1b[{key.code}{shifted}{modifiers}u".encode()


_TOKENS: Final = re.compile(
    rb"(?P<sequence>\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[A-Za-z])"
    rb"|\x1b(?P<alt>[\x00-\x1a\x1c-\x7f]|[\xc0-\xff][\x80-\xbf]*)"
    rb"|(?P<one>[\x00-\x1f])"
    rb"|(?P<text>[^\x00-\x1f]+)"
)
"""Keys from a terminal that sends none of them, or only some, in the protocol's form."""

_AMBIGUOUS: Final = frozenset(b"\x08\x09\x0d\x1e\x1f")
"""Control characters that more than one key sends: they stay as they are."""


def for_program(data: bytes, modes: Modes, flags: int) -> bytes:
    """Returns keys in the form that the program wants, whatever form the user's terminal sends.
    ``data`` holds whole keys."""
    if not flags and b"\x1b[" not in data:
        return data
    found = []
    for token in _TOKENS.finditer(data):
        key = read_key(token[0])
        if flags:
            key = key or _find_key(token)
        if key is None:
            found.append(token[0])
        else:
            found.append(_told(key, flags) if flags else plainly(key, modes))
    keys = b"".join(found)
    return for_application(keys) if modes.application_cursor and not flags else keys


def _find_key(token: re.Match[bytes]) -> Key | None:
    """Returns the key of a plain token that has another form in the protocol; None for others."""
    if token[0] == b"\x1b[Z":
        return Key(_TAB, 0, SHIFT, is_release=False)
    if (alone := token["one"]) is not None:
        return _control(alone[0], 0)
    if (with_alt := token["alt"]) is None:
        return None
    if with_alt[0] < 0x20 and with_alt[0] not in (_ENTER, _TAB):
        return _control(with_alt[0], ALT)
    char = with_alt.decode("utf-8", "replace")[0]
    if char.isupper() and len(char.lower()) == 1:
        return Key(ord(char.lower()), ord(char), SHIFT | ALT, is_release=False)
    return Key(ord(char), 0, ALT, is_release=False)


def _control(byte: int, modifiers: int) -> Key | None:
    """Returns the key of a control character."""
    if byte == _ESCAPE:
        return Key(_ESCAPE, 0, modifiers, is_release=False)
    if byte in _AMBIGUOUS:
        return None
    code = ord(" ") if byte == 0 else byte | (0x60 if byte < 0x1B else 0x40)
    return Key(code, 0, CTRL | modifiers, is_release=False)
