"""A guest's styles as Rich's. The palette of the first 16 colours is the terminal's own, as for any
program in it; the pane's background is the app's."""

from __future__ import annotations

from functools import lru_cache

from rich.color import Color
from rich.style import Style as RichStyle

from quicksand_tui.terminal import DEFAULT_COLOUR, RGB, Attribute, Style, Underline

STYLES_MAX = 4096
"""Converted styles that are remembered: a guest can invent as many as it likes."""


@lru_cache(maxsize=STYLES_MAX)
def rich_style(style: Style) -> RichStyle:
    """How to draw a cell of that style. Without its link: whoever draws knows the address."""
    attributes = style.attributes
    return RichStyle(
        color=_colour(style.fg),
        bgcolor=_colour(style.bg),
        bold=_has(attributes, Attribute.BOLD),
        dim=_has(attributes, Attribute.DIM),
        italic=_has(attributes, Attribute.ITALIC),
        blink=_has(attributes, Attribute.BLINK),
        reverse=_has(attributes, Attribute.REVERSE),
        conceal=_has(attributes, Attribute.HIDDEN),
        strike=_has(attributes, Attribute.STRIKE),
        overline=_has(attributes, Attribute.OVERLINE),
        underline=True if style.underline not in (Underline.NONE, Underline.DOUBLE) else None,
        underline2=True if style.underline == Underline.DOUBLE else None,
    )


def _has(attributes: int, attribute: Attribute) -> bool | None:
    """Rich's None is what nobody has said anything of."""
    return True if attributes & attribute else None


@lru_cache(maxsize=STYLES_MAX)
def _colour(colour: int) -> Color | None:
    if colour == DEFAULT_COLOUR:
        return None
    if colour & RGB:
        return Color.from_rgb(colour >> 16 & 255, colour >> 8 & 255, colour & 255)
    return Color.from_ansi(colour)
