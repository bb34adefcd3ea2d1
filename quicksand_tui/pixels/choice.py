"""Which way of drawing a terminal gets."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Way(Enum):
    """A way to draw pictures in a terminal."""

    KITTY = "kitty"
    SIXEL = "sixel"
    HALF = "half"


class Colours(Enum):
    """How many colours a terminal has."""

    TRUE = "true"
    INDEXED = "256"
    SIXTEEN = "16"
    NONE = "none"


WISHES = ("auto", *(way.value for way in Way))


def choose_way(wish: str, graphics: str, *, in_multiplexer: bool) -> Way:
    """Returns the way that is wished, or for "auto" the best that the terminal has said it knows:
    ``graphics`` is "kitty", "sixel" or "none". In tmux and the like, the terminal that answers is
    not the one that draws, so a picture is text there unless it is wished otherwise."""
    if wish != "auto":
        return Way(wish)
    if in_multiplexer or graphics not in ("kitty", "sixel"):
        return Way.HALF
    return Way(graphics)


def choose_colours(environ: Mapping[str, str]) -> Colours:
    """Returns how many colours a terminal has, as its environment says."""
    term = environ.get("TERM", "")
    if environ.get("NO_COLOR") or term in ("", "dumb") or term.startswith("vt"):
        return Colours.NONE
    if environ.get("COLORTERM") in ("truecolor", "24bit") or term.endswith("-direct"):
        return Colours.TRUE
    if "256" in term or "kitty" in term or "ghostty" in term or "foot" in term:
        return Colours.INDEXED
    return Colours.SIXTEEN
