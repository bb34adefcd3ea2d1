"""Keys as X11 numbers them (keysymdef.h), which VNC sends (RFC 6143, 7.5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

SHIFT, CONTROL, ALT, SUPER = 0xFFE1, 0xFFE3, 0xFFE9, 0xFFEB

KEYS = {
    "backspace": 0xFF08, "tab": 0xFF09, "enter": 0xFF0D, "escape": 0xFF1B,
    "home": 0xFF50, "left": 0xFF51, "up": 0xFF52, "right": 0xFF53, "down": 0xFF54,
    "pageup": 0xFF55, "pagedown": 0xFF56, "end": 0xFF57, "insert": 0xFF63, "delete": 0xFFFF,
    **{f"f{number}": 0xFFBD + number for number in range(1, 13)},
}  # fmt: skip

SHIFTED = frozenset('ABCDEFGHIJKLMNOPQRSTUVWXYZ~!@#$%^&*()_+{}|:"<>?')
"""Characters that need shift on QEMU's keyboard, the US layout: it presses none by itself."""


class Chord(NamedTuple):
    """A key with modifiers."""

    key: str
    """A character, or a name of `KEYS`."""
    shift: bool = False
    alt: bool = False
    control: bool = False
    super: bool = False


class Stroke(NamedTuple):
    """A key that goes down or up."""

    keysym: int
    down: bool


def keysym_of(key: str) -> int:
    """Returns the number of a character or of a name in `KEYS`."""
    if key in KEYS:
        return KEYS[key]
    number = ord(key)
    if 0x20 <= number < 0x7F or 0xA0 <= number < 0x100:
        return number
    return 0x01000000 | number


def strokes(chord: Chord) -> Iterator[Stroke]:
    """Yields the strokes that press and release a chord, modifiers around."""
    held = []
    if chord.shift or chord.key in SHIFTED:
        held.append(SHIFT)
    held += [
        keysym
        for wanted, keysym in ((chord.control, CONTROL), (chord.alt, ALT), (chord.super, SUPER))
        if wanted
    ]
    pressed = [*held, keysym_of(chord.key)]
    yield from (Stroke(keysym, down=True) for keysym in pressed)
    yield from (Stroke(keysym, down=False) for keysym in reversed(pressed))
