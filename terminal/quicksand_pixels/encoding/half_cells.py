"""Two pixels a cell: the upper half in the character's colour, the lower in the background's.

Works in every terminal, in text that is moved, covered and copied like any other. Colours lose
their lowest bits, so that neighbours are equal more often.
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING

from PIL import Image
from quicksand_vt import XTERM_COLOURS

from quicksand_pixels.text_cells import LOWER, UPPER, PackedCells, Run, pack_cells, runs
from quicksand_pixels.viewport import Rect
from quicksand_pixels.ways import Colours

if TYPE_CHECKING:
    from quicksand_pixels.text_cells import Cells


KEPT_BITS = 0xF8
"""Five bits a colour: half the bytes, and no visible loss at this size."""

RAMP = " .:-=+*#%@"
"""Characters from dark to light, where there are neither colours nor half cells."""

_KEPT = [value & KEPT_BITS | value >> 5 for value in range(256)]
TO_KEPT = _KEPT * 3 + list(range(256))
"""A table for `Image.point`, of RGBA, that keeps the highest bits of colours; alpha stays."""
_CUBE = (0, 95, 135, 175, 215, 255)
"""The levels of xterm's 256 colours."""

_SIXTEEN = [(value >> 16, value >> 8 & 255, value & 255) for value in XTERM_COLOURS[:16]]
"""xterm's defaults; a terminal's own may differ."""


class HalfCells:
    """Draws the changed cells of rows."""

    def __init__(self, colours: Colours = Colours.TRUE, *, ascii_only: bool = False) -> None:
        self._colours = colours
        self._ascii = ascii_only
        self._shown: list[list[bytes]] = []
        """The cells of rows: the upper pixel and the lower one, six bytes."""

    @property
    def cell(self) -> tuple[int, int]:
        return 1, 2

    @property
    def stays(self) -> bool:
        return True

    def draw(self, picture: Image.Image, corner: tuple[int, int], part: Rect) -> bytes:
        drawn: list[str] = []
        for row, column, cells in self.changed(picture, part):
            drawn.append(f"\x1b[{corner[1] + row + 1};{corner[0] + column + 1}H")
            drawn.append(self._text(runs(cells)))
        if not drawn:
            return b""
        if self._colours is not Colours.NONE:
            drawn.append("\x1b[m")
        return "".join(drawn).encode()

    def changed(self, picture: Image.Image, part: Rect) -> list[tuple[int, int, list[bytes]]]:
        """Returns row, first column and cells of each change, and takes them as shown."""
        if len(self._shown) != picture.height // 2:
            self._shown = [[] for _ in range(picture.height // 2)]
        found = []
        box = (0, 2 * part.y, picture.width, 2 * (part.y + part.height))
        pixels = picture.crop(box).point(_KEPT * 3).tobytes()
        line = 3 * picture.width
        for index in range(part.height):
            row = part.y + index
            top = pixels[2 * index * line : (2 * index + 1) * line]
            bottom = pixels[(2 * index + 1) * line : (2 * index + 2) * line]
            cells = [top[at : at + 3] + bottom[at : at + 3] for at in range(0, line, 3)]
            before, self._shown[row] = self._shown[row], cells
            if cells != before:
                first, last = _differing(before, cells)
                found.append((row, first, cells[first:last]))
        return found

    def forget(self) -> bytes:
        self._shown = []
        return b""

    def _text(self, found: list[Run]) -> str:
        if self._colours is Colours.NONE:
            return "".join(_plain(run, ascii_only=self._ascii) for run in found)
        drawn = []
        front = back = b""
        for run in found:
            upper, lower = run.upper, run.lower
            if self._ascii and upper != lower:
                upper = lower = bytes(
                    (one + other) // 2 & KEPT_BITS for one, other in zip(upper, lower, strict=True)
                )
            if upper == lower:
                glyph, wanted = " ", (front, upper)
            elif lower == front or upper == back:
                glyph, wanted = LOWER, (lower, upper)
            else:
                glyph, wanted = UPPER, (upper, lower)
            codes = []
            if wanted[0] != front:
                codes.append(_code(wanted[0], self._colours, back=False))
            if wanted[1] != back:
                codes.append(_code(wanted[1], self._colours, back=True))
            front, back = wanted
            if codes:
                drawn.append(f"\x1b[{';'.join(codes)}m")
            drawn.append(glyph * run.cells)
        return "".join(drawn)


class PackedRows(HalfCells):
    """Instead of drawing, gives the changed cells as data (`quicksand_pixels.parse_cells`)."""

    @property
    def stays(self) -> bool:
        return False

    def draw(self, picture: Image.Image, corner: tuple[int, int], part: Rect) -> bytes:
        return b"".join(
            pack_cells(PackedCells(corner[1] + row, corner[0] + column, cells))
            for row, column, cells in self.changed(picture, part)
        )


def _differing(before: list[bytes], now: list[bytes]) -> tuple[int, int]:
    """Returns the first cell that differs, and the one after the last."""
    if len(before) != len(now):
        return 0, len(now)
    pairs = zip(before, now, strict=True)
    first = next(index for index, (old, new) in enumerate(pairs) if old != new)
    last = len(now)
    while before[last - 1] == now[last - 1]:
        last -= 1
    return first, last


def luminance(colour: bytes) -> int:
    """Returns the lightness of a colour, from 0 to 255 (ITU-R BT.601)."""
    return (299 * colour[0] + 587 * colour[1] + 114 * colour[2]) // 1000


def _plain(run: Run, *, ascii_only: bool) -> str:
    up, down = luminance(run.upper), luminance(run.lower)
    if ascii_only:
        return RAMP[(up + down) * len(RAMP) // 512] * run.cells
    return " ▄▀█"[2 * (up > 127) + (down > 127)] * run.cells


@lru_cache(maxsize=1 << 16)
def _code(colour: bytes, colours: Colours, *, back: bool) -> str:
    """Returns the parameters of SGR for a colour."""
    if colours is Colours.TRUE:
        return f"{48 if back else 38};2;{colour[0]};{colour[1]};{colour[2]}"
    if colours is Colours.INDEXED:
        return f"{48 if back else 38};5;{indexed(colour)}"
    number = nearest_of_sixteen(colour)
    return str((40 if back else 30) + number if number < 8 else (100 if back else 90) + number - 8)


def indexed(colour: bytes) -> int:
    """Returns the nearest of xterm's colours 16 to 255: the cube or a grey."""
    levels = [0 if part < 48 else 1 if part < 115 else (part - 35) // 40 for part in colour]
    cube = [_CUBE[level] for level in levels]
    grey = min(max(0, (sum(colour) // 3 - 3) // 10), 23)
    if _distance(colour, (8 + 10 * grey,) * 3) < _distance(colour, cube):
        return 232 + grey
    return 16 + 36 * levels[0] + 6 * levels[1] + levels[2]


def nearest_of_sixteen(colour: bytes) -> int:
    """Returns the nearest of the sixteen colours."""
    return min(range(16), key=lambda number: _distance(colour, _SIXTEEN[number]))


def _distance(one: bytes, other: tuple[int, ...] | list[int]) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


PIXELS_MAX = 1 << 20
"""The most pixels of a picture from a file; a checkpoint's has a tenth of them."""


def read_png(data: bytes) -> Image.Image:
    """Returns the picture in a PNG file. Raises ValueError if it is no PNG, or too large."""
    try:
        with Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.width * image.height > PIXELS_MAX:
                raise ValueError(f"it has {image.width}x{image.height} pixels")
            return image.convert("RGB")
    except Image.DecompressionBombError as error:
        raise ValueError(f"it has too many pixels: {error}") from error
    except (OSError, SyntaxError) as error:  # Pillow's words for a file that is damaged
        raise ValueError(f"it is no PNG: {error}") from error


def fit(image: Image.Image, columns: int, rows: int) -> Cells:
    """Returns the whole picture in at most so many cells, in its own proportions and never
    enlarged. A cell is taken as twice as high as wide."""
    if columns < 1 or rows < 1:
        return ()
    factor = min(columns / image.width, 2 * rows / image.height, 1.0)
    wide = max(1, round(image.width * factor))
    high = max(1, round(image.height * factor / 2))
    small = image.convert("RGB").resize((wide, 2 * high), Image.Resampling.BOX)
    drawn = HalfCells().changed(small, Rect(0, 0, wide, high))
    return tuple(tuple(cells) for _, _, cells in drawn)
