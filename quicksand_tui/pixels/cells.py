"""Half cells as values, for a viewer that draws them itself, without the library for pictures."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

UPPER, LOWER = "▀", "▄"

Cells = tuple[tuple[bytes, ...], ...]
"""Rows of cells: the upper pixel and the lower one, six bytes."""


class Run(NamedTuple):
    """Equal cells side by side."""

    cells: int
    upper: bytes
    """Red, green and blue."""
    lower: bytes


def runs(cells: Sequence[bytes]) -> list[Run]:
    """Returns cells as runs of equal ones."""
    return [Run(len(list(same)), cell[:3], cell[3:]) for cell, same in groupby(cells)]
