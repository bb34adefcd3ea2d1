"""The way in which a terminal gets pictures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Way(Enum):
    """A way to draw pictures in a terminal."""

    KITTY = "kitty"
    SIXEL = "sixel"
    HALF = "half"


class Colours(Enum):
    """The colours of a terminal."""

    TRUE = "true"
    INDEXED = "256"
    SIXTEEN = "16"
    NONE = "none"


PLACEHOLDERS_IN = ("kitty", "ghostty")
"""The beginnings of the names of terminals that have Unicode placeholders."""


def choose_way(wish: str, graphics: str, *, in_multiplexer: bool) -> Way:
    """Returns the way that is wished, or for "auto" the best that the terminal has said it knows:
    ``graphics`` is "kitty", "sixel" or "none". In tmux and the like, the terminal that answers is
    not the one that draws, so a picture is text there unless it is wished otherwise."""
    if wish != "auto":
        return Way(wish)
    if in_multiplexer or graphics not in ("kitty", "sixel"):
        return Way.HALF
    return Way(graphics)


def choose_way_in_text(
    wish: str, graphics: str, name: str, *, in_multiplexer: bool, true_colours: bool
) -> Way:
    """Returns the way for a picture that is part of an app's text: kitty's graphics where the
    terminal shows them in cells of text (`PLACEHOLDERS_IN`), else half cells. ``wish`` is "auto",
    "kitty" or "half", ``name`` the terminal's own. An image's id is a colour of 24 bits."""
    if wish == Way.HALF.value or not true_colours:
        return Way.HALF
    knows = graphics == Way.KITTY.value and name.lower().startswith(PLACEHOLDERS_IN)
    return Way.KITTY if wish == Way.KITTY.value or (knows and not in_multiplexer) else Way.HALF


def choose_colours(environ: Mapping[str, str]) -> Colours:
    """Returns the colours of a terminal, as its environment says."""
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb") or term.startswith("vt"):
        return Colours.NONE
    if environ.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct"):
        return Colours.TRUE
    if "256" in term or "kitty" in term or "ghostty" in term or "foot" in term:
        return Colours.INDEXED
    return Colours.SIXTEEN
