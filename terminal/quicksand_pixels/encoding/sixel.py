"""Sixels (DEC's VT330/VT340 text programming, chapter 14).

A part is sent as rows of cells that have changed, each time with a palette of its own.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from quicksand_pixels.viewport import Rect


COLOURS = 128
"""The most colours of one part: more take longer to encode than anyone notices."""

BAND = 6
"""The height in pixels of a row of sixels."""

_REPEATED = re.compile(rb"(.)\1{3,}", re.DOTALL)
_TO_SIXEL = bytes(63 + value if value < 64 else 63 for value in range(256))


class SixelEncoder:
    """Draws the changed columns of rows of cells that have changed."""

    def __init__(self, cell: tuple[int, int]) -> None:
        self._cell = cell
        self._shown: Image.Image | None = None

    @property
    def cell(self) -> tuple[int, int]:
        return self._cell

    @property
    def stays(self) -> bool:
        return True

    def draw(self, picture: Image.Image, corner: tuple[int, int], part: Rect) -> bytes:
        wide, high = self._cell
        drawn = bytearray()
        for top, bottom, left, right in self._changed(picture, part):
            box = (left * wide, top * high, right * wide, bottom * high)
            drawn += b"\x1b[%d;%dH" % (corner[1] + top + 1, corner[0] + left + 1)
            drawn += encode_sixels(picture.crop(box))
        self._shown = picture.copy()
        return bytes(drawn)

    def forget(self) -> bytes:
        self._shown = None
        return b""

    def _changed(self, picture: Image.Image, part: Rect) -> list[tuple[int, int, int, int]]:
        """Returns top, bottom, left and right, in cells, of runs of rows that have changed."""
        found: list[tuple[int, int, int, int]] = []
        right = part.x + part.width
        for row in range(part.y, part.y + part.height):
            columns = self._changed_columns(picture, row, part.x, right)
            if columns is None:
                continue
            if found and found[-1][1] == row:
                top, _, left, end = found.pop()
                found.append((top, row + 1, min(left, columns[0]), max(end, columns[1])))
            else:
                found.append((row, row + 1, *columns))
        return found

    def _changed_columns(
        self, picture: Image.Image, row: int, left: int, right: int
    ) -> tuple[int, int] | None:
        if self._shown is None or self._shown.size != picture.size:
            return left, right
        from PIL.ImageChops import difference  # noqa: PLC0415

        wide, high = self._cell
        box = (left * wide, row * high, right * wide, (row + 1) * high)
        differs = difference(picture.crop(box), self._shown.crop(box)).getbbox()
        if differs is None:
            return None
        return left + differs[0] // wide, left + -(-differs[2] // wide)


def encode_sixels(picture: Image.Image) -> bytes:
    """Returns a picture as one sequence. Pixels below its height are left as they are."""
    reduced = picture.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    width, height = reduced.size
    pixels = reduced.tobytes()
    colours = reduced.getpalette() or []
    drawn = bytearray(b'\x1bP0;1;0q"1;1;%d;%d' % (width, height))
    for index in sorted(set(pixels)):
        red, green, blue = (
            round(value * 100 / 255) for value in colours[3 * index : 3 * index + 3]
        )
        drawn += b"#%d;2;%d;%d;%d" % (index, red, green, blue)
    for top in range(0, height, BAND):
        lines = [
            pixels[row * width : (row + 1) * width] for row in range(top, min(top + BAND, height))
        ]
        drawn += _band(lines, width)
        drawn += b"-"
    return bytes(drawn[:-1]) + b"\x1b\\"


def _band(lines: list[bytes], width: int) -> bytes:
    """Returns up to six lines of pixels, colour by colour."""
    passes = []
    for colour in sorted(set(b"".join(lines))):
        bits = 0
        for index, line in enumerate(lines):
            if colour in line:
                bits |= int.from_bytes(line.translate(_only(colour, index)), "little")
        sixels = bits.to_bytes(width, "little").translate(_TO_SIXEL).rstrip(b"?")
        passes.append(b"#%d" % colour + _REPEATED.sub(_repeat, sixels))
    return b"$".join(passes)


@cache
def _only(colour: int, row: int) -> bytes:
    """Returns a table that turns a colour into the bit of its row, and all others into 0."""
    table = bytearray(256)
    table[colour] = 1 << row
    return bytes(table)


def _repeat(match: re.Match[bytes]) -> bytes:
    return b"!%d%s" % (len(match[0]), match[1])
