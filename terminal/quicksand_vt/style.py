"""The look of cells: colours, attributes, links, the palette."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from typing import Final, NamedTuple

ADDRESS_MAX: Final = 2083
"""The longest address of a link in characters, as in VTE and iTerm2."""

LINKS_MAX: Final = 8192
"""How many links are remembered."""
CHARACTERS_MAX: Final = 1024 * 1024
"""The characters of all addresses together. Beyond either limit the oldest links are forgotten;
their text stays."""

_ADDRESS: Final = re.compile(r"(?:https?|file|mailto):[!-~]+", re.IGNORECASE)
"""The schemes that may be opened, and the characters that a URI may have (RFC 3986)."""


class Links:
    """Addresses of links by number; numbers are not reused."""

    def __init__(self) -> None:
        self._addresses: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._characters = 0
        self._next = 1

    def number(self, address: str) -> int:
        """Returns the number of an address; 0 if it cannot be a link."""
        known = self._numbers.get(address)
        if known is not None:
            return known
        if len(address) > ADDRESS_MAX or not _ADDRESS.fullmatch(address):
            return 0
        while len(self._addresses) >= LINKS_MAX or self._characters > CHARACTERS_MAX:
            oldest = next(iter(self._addresses))
            gone = self._addresses.pop(oldest)
            del self._numbers[gone]
            self._characters -= len(gone)
        # Numbers are packed in 32 bits, so they start again after 2**32 - 1 links.
        number = self._next
        self._next = number % 0xFFFFFFFF + 1
        self._addresses[number] = address
        self._numbers[address] = number
        self._characters += len(address)
        return number

    def address(self, number: int) -> str:
        """Returns the address; "" for 0 or if it is forgotten."""
        return self._addresses.get(number, "")

    def clear(self) -> None:
        self._addresses.clear()
        self._numbers.clear()
        self._characters = 0


_LEVELS: Final = (0, 95, 135, 175, 215, 255)

# The first 16 are from xterm's XTerm-col.ad, the cube and the greys from its 256colres.pl.
_BASIC: Final = (
    *(0x000000, 0xCD0000, 0x00CD00, 0xCDCD00, 0x0000EE, 0xCD00CD, 0x00CDCD, 0xE5E5E5),
    *(0x7F7F7F, 0xFF0000, 0x00FF00, 0xFFFF00, 0x5C5CFF, 0xFF00FF, 0x00FFFF, 0xFFFFFF),
)
_CUBE: Final = tuple(r << 16 | g << 8 | b for r in _LEVELS for g in _LEVELS for b in _LEVELS)
_GREYS: Final = tuple((8 + 10 * n) * 0x010101 for n in range(24))

XTERM_COLOURS: Final = _BASIC + _CUBE + _GREYS
"""256 colours as ``0xRRGGBB``."""


INDICES: Final = 256 + 5
"""The palette, and the colours that xterm can give to bold, underlined, blinking, reversed and
italic text instead of their own."""


class Special(Enum):
    """Colours outside the palette, by their OSC number."""

    FOREGROUND = 10
    BACKGROUND = 11
    CURSOR = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Palette:
    """The colours in which the terminal is shown, as ``0xRRGGBB``."""

    foreground: int = 0xE5E5E5
    background: int = 0x000000
    cursor: int = 0xE5E5E5
    colours: tuple[int, ...] = XTERM_COLOURS
    """Exactly 256; otherwise the constructor raises ValueError."""

    def __post_init__(self) -> None:
        if len(self.colours) != 256:
            raise ValueError(f"a palette has 256 colours, not {len(self.colours)}")


class Colours:
    """A palette with the program's changes."""

    def __init__(self, palette: Palette) -> None:
        self.palette = palette
        self.changed: dict[int | Special, int] = {}
        """The changed colours by index or special colour, which bounds their number."""

    def get(self, which: int | Special) -> int:
        """Returns the colour of an index below `INDICES`, or a special one, as ``0xRRGGBB``."""
        if which in self.changed:
            return self.changed[which]
        if isinstance(which, int):
            is_attribute = which >= len(self.palette.colours)
            return self.palette.foreground if is_attribute else self.palette.colours[which]
        return {
            Special.FOREGROUND: self.palette.foreground,
            Special.BACKGROUND: self.palette.background,
            Special.CURSOR: self.palette.cursor,
        }[which]


_HEX: Final = re.compile(r"rgb:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})", re.IGNORECASE)
_SHORT: Final = re.compile(r"#(?:[0-9a-f]{3}|[0-9a-f]{6}|[0-9a-f]{9}|[0-9a-f]{12})", re.IGNORECASE)


def parse_colour(text: str) -> int | None:
    """Parses a colour as XParseColor(3) does: ``rgb:r/g/b`` or ``#rgb``, with one to four hex
    digits each, but no names. Returns ``0xRRGGBB``, or None if it is invalid."""
    match = _HEX.fullmatch(text)
    if match is not None:
        # In rgb:, each number is a fraction of the largest one with as many digits.
        words = match.groups()
        parts = [int(word, 16) * 255 // int("f" * len(word), 16) for word in words]
    elif _SHORT.fullmatch(text):
        # After #, the digits are the most significant bits.
        size = len(text) // 3
        starts = range(1, len(text), size)
        parts = [int(text[at : at + size].ljust(2, "0")[:2], 16) for at in starts]
    else:
        return None
    red, green, blue = parts
    return red << 16 | green << 8 | blue


def colour_text(colour: int) -> str:
    """Returns a colour as xterm reports it: ``rgb:rrrr/gggg/bbbb``."""
    red, green, blue = colour >> 16 & 255, colour >> 8 & 255, colour & 255
    return f"rgb:{red:02x}{red:02x}/{green:02x}{green:02x}/{blue:02x}{blue:02x}"


DEFAULT_COLOUR: Final = -1
"""The terminal's own foreground or background."""

RGB: Final = 1 << 24
"""Marks a colour ``RGB | 0xRRGGBB``; without it, 0 to 255 is an index into the palette."""


class Attribute(IntFlag):
    """Attributes of a cell besides colours and underline."""

    BOLD = 1
    DIM = 2
    ITALIC = 4
    BLINK = 8
    REVERSE = 16
    HIDDEN = 32
    STRIKE = 64
    OVERLINE = 128
    PROTECTED = 256
    """Not drawn: DECSCA or SPA protects the cell from being erased."""


class Underline(IntEnum):
    """Kinds of underline, by their number in SGR ``4:n``."""

    NONE = 0
    SINGLE = 1
    DOUBLE = 2
    CURLY = 3
    DOTTED = 4
    DASHED = 5


class Style(NamedTuple):
    """The look of a cell. Colours are `DEFAULT_COLOUR`, an index into the palette, or `RGB` with
    three bytes."""

    fg: int = DEFAULT_COLOUR
    bg: int = DEFAULT_COLOUR
    underline_colour: int = DEFAULT_COLOUR
    """`DEFAULT_COLOUR` is the colour of the text."""
    attributes: int = 0
    """Bits of `Attribute`."""
    underline: int = Underline.NONE
    link: int = 0
    """The number of the hyperlink (`Terminal.link` returns its address); 0 for none."""
    picture: int = 0
    """The number of the part of a picture that is shown instead of the character
    (`graphics.Graphics`); 0 for none."""


PLAIN: Final = Style()
"""The initial style; unstyled cells hold this very object, so that ``is`` compares it."""

STYLES_MAX: Final = 4096
"""How many entries a cache holds before it is cleared, which bounds the memory that a program can
fill."""

PARAMETERS_MAX: Final = 128
"""The longest parameters, in characters, whose effect is cached."""

_ON: Final = {
    1: Attribute.BOLD,
    2: Attribute.DIM,
    3: Attribute.ITALIC,
    5: Attribute.BLINK,
    6: Attribute.BLINK,
    7: Attribute.REVERSE,
    8: Attribute.HIDDEN,
    9: Attribute.STRIKE,
    53: Attribute.OVERLINE,
}
_OFF: Final = {
    22: Attribute.BOLD | Attribute.DIM,
    23: Attribute.ITALIC,
    25: Attribute.BLINK,
    27: Attribute.REVERSE,
    28: Attribute.HIDDEN,
    29: Attribute.STRIKE,
    55: Attribute.OVERLINE,
}
_COLOURS: Final = {
    **{30 + n: ("fg", n) for n in range(8)},
    **{90 + n: ("fg", n + 8) for n in range(8)},
    **{40 + n: ("bg", n) for n in range(8)},
    **{100 + n: ("bg", n + 8) for n in range(8)},
    39: ("fg", DEFAULT_COLOUR),
    49: ("bg", DEFAULT_COLOUR),
    59: ("underline_colour", DEFAULT_COLOUR),
}
_EXTENDED: Final = {38: "fg", 48: "bg", 58: "underline_colour"}


class Styles:
    """Makes styles, with a cache that keeps one object of each."""

    def __init__(self) -> None:
        self.changes: dict[tuple[Style, str], tuple[Style, Style]] = {}
        """The cached results of `change`."""
        self._known: dict[Style, Style] = {PLAIN: PLAIN}

    def change(self, style: Style, params: str) -> tuple[Style, Style]:
        """Applies SGR parameters (``1;38:2::255:0:0``) to a style; returns it with the style that
        erasing then leaves. Several sequences have ``m CSI`` between their parameters."""
        changed = style
        for one in params.split("m\x1b["):
            changed = apply_sgr(changed, one)
        changed = self.intern(changed)
        found = (changed, self.blank(changed))
        if len(params) <= PARAMETERS_MAX:
            if len(self.changes) >= STYLES_MAX:
                self.changes.clear()
            self.changes[style, params] = found
        return found

    def intern(self, style: Style) -> Style:
        """Returns the cached object of this style."""
        if len(self._known) >= STYLES_MAX:
            self._known.clear()
            self._known[PLAIN] = PLAIN
        return self._known.setdefault(style, style)

    def blank(self, style: Style) -> Style:
        """Returns the style that erasing leaves: only the background (xterm's BCE)."""
        return PLAIN if style.bg == DEFAULT_COLOUR else self.intern(Style(bg=style.bg))


def apply_sgr(style: Style, params: str) -> Style:
    """Applies one SGR without a cache; ignores unknown parameters."""
    words = iter(params.split(";"))
    for word in words:
        head, *parts = word.split(":")
        code = _number(head)
        if code in _EXTENDED:
            colour = _sub_colour(parts) if parts else _plain_colour(words)
            if colour is not None:
                style = style._replace(**{_EXTENDED[code]: colour})
        elif parts:
            if code == 4 and len(parts) == 1 and _number(parts[0]) <= Underline.DASHED:
                style = style._replace(underline=_number(parts[0]))
        else:
            style = _simple(style, code)
    return style


def _simple(style: Style, code: int) -> Style:
    """Applies a parameter without sub-parameters."""
    if code == 0:
        kept = style.attributes & Attribute.PROTECTED
        return Style(link=style.link, attributes=kept) if style.link or kept else PLAIN
    if code in _ON:
        return style._replace(attributes=style.attributes | int(_ON[code]))
    if code in _OFF:
        return style._replace(attributes=style.attributes & ~int(_OFF[code]))
    if code in _COLOURS:
        field, colour = _COLOURS[code]
        return style._replace(**{field: colour})
    if code in (4, 21, 24):
        kinds = {4: Underline.SINGLE, 21: Underline.DOUBLE, 24: Underline.NONE}
        return style._replace(underline=kinds[code])
    return style


def _number(word: str) -> int:
    """Returns a parameter as a number: 0 if it is empty, an unknown code if it is invalid."""
    if not word:
        return 0
    return int(word) if word.isdecimal() and len(word) <= 5 else 99999


def _plain_colour(words: Iterator[str]) -> int | None:
    """Consumes ``5;n`` or ``2;r;g;b`` from the parameters."""
    kind = _number(next(words, ""))
    if kind == 5:
        return _indexed(_number(next(words, "")))
    if kind == 2:
        return _rgb([_number(next(words, "")) for _ in range(3)])
    return None


def _sub_colour(parts: list[str]) -> int | None:
    """Parses ``5:n``, ``2:r:g:b``, or ``2:space:r:g:b`` with anything after it (ISO 8613-6)."""
    kind, *values = (_number(part) for part in parts)
    if kind == 5 and values:
        return _indexed(values[0])
    if kind == 2 and len(values) >= 3:
        return _rgb(values[:3] if len(values) == 3 else values[1:4])
    return None


def _indexed(index: int) -> int | None:
    return index if index <= 255 else None


def _rgb(values: list[int]) -> int | None:
    if max(values) > 255:
        return None
    red, green, blue = values
    return RGB | red << 16 | green << 8 | blue


def sgr_text(style: Style) -> str:
    """Returns the SGR parameters that turn any style into this one."""
    words = ["0"]
    words += [str(code) for code, bit in _ON.items() if style.attributes & bit and code != 6]
    if style.underline:
        words.append("4" if style.underline == Underline.SINGLE else f"4:{style.underline:d}")
    words += _colour_words(style.fg, 38, lambda n: f"{n + 30 if n < 8 else n + 82}")
    words += _colour_words(style.bg, 48, lambda n: f"{n + 40 if n < 8 else n + 92}")
    words += _colour_words(style.underline_colour, 58, lambda n: f"58:5:{n}")
    return ";".join(words)


def _colour_words(colour: int, code: int, basic: Callable[[int], str]) -> list[str]:
    if colour == DEFAULT_COLOUR:
        return []
    if colour & RGB:
        return [f"{code}:2::{colour >> 16 & 255}:{colour >> 8 & 255}:{colour & 255}"]
    return [basic(colour) if colour < 16 else f"{code}:5:{colour}"]
