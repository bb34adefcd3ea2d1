"""Kitty's graphics protocol (sw.kovidgoyal.net/kitty/graphics-protocol).

The view is a grid of tiles, each an image of its own, so that only the tiles that change are sent.
A tile has two ids by turns: the new image is placed before the old one is deleted.
"""

from __future__ import annotations

import zlib
from base64 import standard_b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING

from quicksand_pixels.placeholders import TILE_COLUMNS, TILE_ROWS, delete_image, tile_id

if TYPE_CHECKING:
    from PIL import Image

    from quicksand_pixels.viewport import Rect


CHUNK = 4096
"""The most bytes of base64 in one sequence, from the protocol."""

LEVEL = 1
"""The level of zlib: higher levels take several times as long for a tenth less."""

IMAGE_IDS = 1 << 16
"""The number of ids of a view; a grid of 1000x500 cells needs a sixteenth of them."""


class KittyEncoder:
    """Draws tiles of true colours."""

    def __init__(self, cell: tuple[int, int], *, first_id: int, z: int = -1) -> None:
        """``first_id`` and the `IMAGE_IDS` after it belong to this view alone. ``z`` puts pictures
        below (negative) or above text."""
        self._cell = cell
        self._first = first_id
        self._z = z
        self._shown: dict[tuple[int, int], tuple[int, bytes]] = {}
        """The id and the pixels of tiles by column and row."""

    @property
    def cell(self) -> tuple[int, int]:
        return self._cell

    @property
    def stays(self) -> bool:
        return False

    def draw(self, picture: Image.Image, corner: tuple[int, int], part: Rect) -> bytes:
        wide, high = self._cell
        columns, rows = picture.width // wide, picture.height // high
        drawn = bytearray()
        for x, y in _tiles(part):
            right, bottom = min(x + TILE_COLUMNS, columns), min(y + TILE_ROWS, rows)
            tile = picture.crop((x * wide, y * high, right * wide, bottom * high))
            drawn += self._draw_tile((x, y), tile, (corner[0] + x, corner[1] + y))
        return bytes(drawn)

    def forget(self) -> bytes:
        shown, self._shown = self._shown, {}
        return b"".join(delete_image(number) for number, _ in shown.values())

    def _draw_tile(self, key: tuple[int, int], tile: Image.Image, place: tuple[int, int]) -> bytes:
        pixels = tile.tobytes()
        before = self._shown.get(key)
        if before is not None and before[1] == pixels:
            return b""
        number = self._number(key) if before is None else self._next_number(before[0])
        self._shown[key] = (number, pixels)
        return self._send(number, tile, place, None if before is None else before[0])

    def _send(
        self, number: int, tile: Image.Image, place: tuple[int, int], old: int | None
    ) -> bytes:
        """Returns the bytes that show a tile at a cell, and remove the tile before."""
        wide, high = self._cell
        # Rows and columns keep the tile in its cells in a terminal whose cells have other sizes.
        control = (
            f"a=T,q=2,C=1,f=24,o=z,s={tile.width},v={tile.height},i={number},p=1,z={self._z}"
            f",c={tile.width // wide},r={tile.height // high}"
        )
        move = b"\x1b[%d;%dH" % (place[1] + 1, place[0] + 1)
        return move + transmit(control, tile) + (b"" if old is None else delete_image(old))

    def _number(self, key: tuple[int, int]) -> int:
        column, row = key[0] // TILE_COLUMNS, key[1] // TILE_ROWS
        return self._first + 2 * ((row * 128 + column) % (IMAGE_IDS // 2))

    def _next_number(self, number: int) -> int:
        """Returns the id of a tile's next image."""
        return number ^ 1


class PlaceholderEncoder(KittyEncoder):
    """Sends changed tiles, each an image of its own, and no text: the program that draws the text
    puts the placeholders (`quicksand_pixels.cell_at`) in the places of the pictures."""

    def _number(self, key: tuple[int, int]) -> int:
        return tile_id(key[0], key[1], self._first)

    def _next_number(self, number: int) -> int:
        return number

    def _send(
        self, number: int, tile: Image.Image, place: tuple[int, int], old: int | None
    ) -> bytes:
        wide, high = self._cell
        control = (
            f"a=T,U=1,q=2,f=24,o=z,s={tile.width},v={tile.height},i={number}"
            f",c={tile.width // wide},r={tile.height // high}"
        )
        return transmit(control, tile)


def _tiles(part: Rect) -> Iterator[tuple[int, int]]:
    """Yields the first cells of all tiles that a part touches."""
    for y in range(part.y - part.y % TILE_ROWS, part.y + part.height, TILE_ROWS):
        for x in range(part.x - part.x % TILE_COLUMNS, part.x + part.width, TILE_COLUMNS):
            yield x, y


def transmit(control: str, tile: Image.Image) -> bytes:
    """Returns the bytes that send the pixels of a tile."""
    text = standard_b64encode(zlib.compress(tile.tobytes(), LEVEL))
    pieces = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    last = len(pieces) - 1
    drawn = bytearray()
    for index, piece in enumerate(pieces):
        more = b"m=%d" % (index < last)
        keys = control.encode() + b"," + more if index == 0 else b"q=2," + more
        drawn += b"\x1b_G" + keys + b";" + piece + b"\x1b\\"
    return bytes(drawn)
