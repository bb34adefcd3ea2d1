"""Half cells as values, for a viewer that draws them itself, without the library for pictures."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
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


class PackedCells(NamedTuple):
    """Changed cells of a row."""

    row: int
    column: int
    cells: list[bytes]


_CELLS = struct.Struct(">HHH")


def pack_cells(found: PackedCells) -> bytes:
    return _CELLS.pack(found.row, found.column, len(found.cells)) + b"".join(found.cells)


def parse_cells(data: bytes) -> Iterator[PackedCells]:
    """Reads any number of the pieces that `pack_cells` wrote."""
    at = 0
    while at < len(data):
        row, column, count = _CELLS.unpack_from(data, at)
        at += _CELLS.size
        cells = [data[start : start + 6] for start in range(at, at + 6 * count, 6)]
        at += 6 * count
        yield PackedCells(row, column, cells)
