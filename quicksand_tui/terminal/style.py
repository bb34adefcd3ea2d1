"""How a cell looks: an immutable style, and SGR, the sequences that change it.

Numbers are those of ECMA-48 8.3.117 (SGR) and of xterm's control sequences (ctlseqs): 38, 48 and
58 with palette or RGB colours, 4:n for kinds of underline, 90-107 for bright colours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum, IntFlag
from typing import Final, NamedTuple

DEFAULT_COLOUR: Final = -1
"""The terminal's own foreground or background."""

RGB: Final = 1 << 24
"""Set in a colour that is ``RGB | 0xRRGGBB``; without it, 0-255 is an index into the palette."""


class Attribute(IntFlag):
    """What a cell's character is besides coloured and underlined."""

    BOLD = 1
    DIM = 2
    ITALIC = 4
    BLINK = 8
    REVERSE = 16
    HIDDEN = 32
    STRIKE = 64
    OVERLINE = 128


class Underline(IntEnum):
    """Kinds of underline, by their number in SGR 4:n."""

    NONE = 0
    SINGLE = 1
    DOUBLE = 2
    CURLY = 3
    DOTTED = 4
    DASHED = 5


class Style(NamedTuple):
    """The look of a cell. Colours are `DEFAULT_COLOUR`, an index into the palette, or `RGB` and
    three bytes."""

    fg: int = DEFAULT_COLOUR
    bg: int = DEFAULT_COLOUR
    underline_colour: int = DEFAULT_COLOUR
    """`DEFAULT_COLOUR` means the colour of the text."""
    attributes: int = 0
    """Bits of `Attribute`."""
    underline: int = Underline.NONE
    link: int = 0
    """Number of the hyperlink (`Terminal.link` has its address), 0 for none."""


PLAIN: Final = Style()
"""The one style that every terminal begins with; cells without any have this very object."""

STYLES_MAX: Final = 4096
"""Entries that each cache of `Styles` holds before it begins anew: what a guest invents is not
remembered for ever."""

PARAMETERS_MAX: Final = 128
"""Characters of parameters whose effect is remembered."""

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
    """Makes styles, and makes each only once as long as it is remembered."""

    def __init__(self) -> None:
        self.changes: dict[tuple[Style, str], tuple[Style, Style]] = {}
        """What `change` returned."""
        self._known: dict[Style, Style] = {PLAIN: PLAIN}

    def change(self, style: Style, params: str) -> tuple[Style, Style]:
        """What SGR with these parameters (``1;38:2::255:0:0``) makes of a style; and what erasing
        leaves then. Of several sequences, ``m CSI`` is between the parameters."""
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
        """The one object for this style."""
        if len(self._known) >= STYLES_MAX:
            self._known.clear()
            self._known[PLAIN] = PLAIN
        return self._known.setdefault(style, style)

    def blank(self, style: Style) -> Style:
        """What erasing leaves: only the background (xterm's BCE)."""
        return PLAIN if style.bg == DEFAULT_COLOUR else self.intern(Style(bg=style.bg))


def apply_sgr(style: Style, params: str) -> Style:
    """`Styles.change`, not remembered. What is unknown changes nothing."""
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
    """One parameter that stands alone."""
    if code == 0:
        return PLAIN if not style.link else Style(link=style.link)
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
    """A parameter; one that is missing is 0, and one that is none is no code of anything."""
    if not word:
        return 0
    return int(word) if word.isdecimal() and len(word) <= 5 else 99999


def _plain_colour(words: Iterator[str]) -> int | None:
    """``5;n`` or ``2;r;g;b``, taken off the list of parameters."""
    kind = _number(next(words, ""))
    if kind == 5:
        return _indexed(_number(next(words, "")))
    if kind == 2:
        return _rgb([_number(next(words, "")) for _ in range(3)])
    return None


def _sub_colour(parts: list[str]) -> int | None:
    """``5:n``, ``2:r:g:b``, or ``2:space:r:g:b`` with whatever follows (ISO 8613-6)."""
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
    """Parameters of the SGR that makes this style out of any other."""
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
