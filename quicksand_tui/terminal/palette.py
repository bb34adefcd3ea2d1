"""Colours by number: what a program is told when it asks, and what it may change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

_LEVELS: Final = (0, 95, 135, 175, 215, 255)

# The first 16 as in xterm's XTerm-col.ad, the cube and the greys as in its 256colres.pl.
_BASIC: Final = (
    *(0x000000, 0xCD0000, 0x00CD00, 0xCDCD00, 0x0000EE, 0xCD00CD, 0x00CDCD, 0xE5E5E5),
    *(0x7F7F7F, 0xFF0000, 0x00FF00, 0xFFFF00, 0x5C5CFF, 0xFF00FF, 0x00FFFF, 0xFFFFFF),
)
_CUBE: Final = tuple(r << 16 | g << 8 | b for r in _LEVELS for g in _LEVELS for b in _LEVELS)
_GREYS: Final = tuple((8 + 10 * n) * 0x010101 for n in range(24))

XTERM_COLOURS: Final = _BASIC + _CUBE + _GREYS
"""256 colours as ``0xRRGGBB``."""


class Special(Enum):
    """Colours that are not in the palette, by their OSC."""

    FOREGROUND = 10
    BACKGROUND = 11
    CURSOR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours that the app shows a terminal in. All are ``0xRRGGBB``."""

    foreground: int = 0xE5E5E5
    background: int = 0x000000
    cursor: int = 0xE5E5E5
    colours: tuple[int, ...] = XTERM_COLOURS
    """256 of them."""

    def __post_init__(self) -> None:
        if len(self.colours) != 256:
            raise ValueError(f"a palette has 256 colours, not {len(self.colours)}")


class Colours:
    """A palette with what the guest changed in it."""

    def __init__(self, palette: Palette) -> None:
        self.palette = palette
        self.changed: dict[int | Special, int] = {}
        """At most one for each index and each special one."""

    def get(self, which: int | Special) -> int:
        """``0xRRGGBB`` of an index from 0 to 255, or of a special one."""
        if which in self.changed:
            return self.changed[which]
        if isinstance(which, int):
            return self.palette.colours[which]
        return {
            Special.FOREGROUND: self.palette.foreground,
            Special.BACKGROUND: self.palette.background,
            Special.CURSOR: self.palette.cursor,
        }[which]


_HEX: Final = re.compile(r"rgb:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)
_SHORT: Final = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{9}|[0-9a-f]{12})", re.IGNORECASE)


def parse_colour(text: str) -> int | None:
    """``0xRRGGBB`` of a colour as XParseColor(3) has them: ``rgb:r/g/b`` or ``#rgb`` with one to
    four hexadecimal digits each. Names are not known."""
    match = _HEX.fullmatch(text)
    if match is not None:
        # rgb: is a share of the largest number with as many digits.
        words = match.groups()
        parts = [int(word, 16) * 255 // int("f" * len(word), 16) for word in words]
    elif _SHORT.fullmatch(text):
        # #: has the most significant bits.
        size = len(text) // 3
        starts = range(1, len(text), size)
        parts = [int(text[at : at + size].ljust(2, "0")[:2], 16) for at in starts]
    else:
        return None
    red, green, blue = parts
    return red << 16 | green << 8 | blue


def colour_text(colour: int) -> str:
    """How xterm answers: ``rgb:rrrr/gggg/bbbb``."""
    red, green, blue = colour >> 16 & 255, colour >> 8 & 255, colour & 255
    return f"rgb:{red:02x}{red:02x}/{green:02x}{green:02x}/{blue:02x}{blue:02x}"
