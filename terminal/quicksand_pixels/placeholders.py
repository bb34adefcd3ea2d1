"""Kitty's images shown by text: Unicode placeholders (sw.kovidgoyal.net/kitty/graphics-protocol).

A cell with the character U+10EEEE shows a part of an image: its colour is the image's id, two
combining marks are the row and the column. So the picture is text like any other, which dialogs
cover and which goes with the next text; no image can stay behind. An image that is sent again under
its id is seen in the cells that are there already: a change costs pixels only.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

PLACEHOLDER = "\U0010eeee"

MARKS = "".join(map(chr, (0x305, 0x30D, 0x30E, 0x310, 0x312, 0x33D, 0x33E, 0x33F))) + "".join(
    map(chr, (0x346, 0x34A, 0x34B, 0x34C, 0x350, 0x351, 0x352, 0x357))
)
"""The numbers 0 to 15 as combining marks, as kitty's rowcolumn-diacritics.txt has them."""

TILE_COLUMNS, TILE_ROWS = 16, 8
"""The cells of a tile: nearly square, some dozens in a usual terminal."""

PLACEHOLDER_IDS = 1 << 12
"""The number of ids of a view; they are in the lowest 24 bits, which a colour has."""

TILES_ACROSS = 64
"""Tiles in a row of ids: 1024 columns, and 512 rows of cells."""


_taken: set[int] = set()


def take_ids() -> int:
    """Returns the first of `PLACEHOLDER_IDS` ids that no other view of this process has. They
    begin anywhere: other programs in the terminal may have images, too."""
    while True:
        first = (1 + secrets.randbelow((1 << 24) // PLACEHOLDER_IDS - 1)) * PLACEHOLDER_IDS
        if first not in _taken or len(_taken) > (1 << 24) // PLACEHOLDER_IDS // 2:
            _taken.add(first)
            return first


class PlaceholderCell(NamedTuple):
    """The text and style of a cell that shows a part of an image."""

    text: str
    colour: tuple[int, int, int]


@lru_cache(maxsize=1 << 14)
def cell_at(column: int, row: int, first_id: int) -> PlaceholderCell:
    """Returns the placeholder for a cell of the picture, counted from its corner."""
    number = tile_id(column, row, first_id)
    text = PLACEHOLDER + MARKS[row % TILE_ROWS] + MARKS[column % TILE_COLUMNS]
    return PlaceholderCell(text, (number >> 16 & 255, number >> 8 & 255, number & 255))


def tile_id(column: int, row: int, first_id: int) -> int:
    """Returns the id of the tile that has a cell."""
    return first_id + (row // TILE_ROWS * TILES_ACROSS + column // TILE_COLUMNS) % PLACEHOLDER_IDS


def tile_ids(columns: int, rows: int, first_id: int) -> Iterator[int]:
    """Yields the ids of all tiles of a picture of so many cells."""
    for row in range(0, rows, TILE_ROWS):
        for column in range(0, columns, TILE_COLUMNS):
            yield tile_id(column, row, first_id)


def delete_images(ids: Iterator[int] | set[int]) -> bytes:
    """Returns the bytes that delete images with their pixels."""
    return b"".join(map(delete_image, ids))


def delete_image(number: int) -> bytes:
    """Returns the bytes that delete an image with its pixels."""
    return b"\x1b_Ga=d,d=I,q=2,i=%d\x1b\\" % number
