"""Positions and sizes in terminal cells."""

from __future__ import annotations

from typing import NamedTuple


class Rect(NamedTuple):
    """A rectangle; in cells from the top left corner of the terminal, unless said otherwise."""

    x: int
    y: int
    width: int
    height: int
