"""A small picture as half cells, for a place where it only has to be recognised."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from PIL import Image

from quicksand_tui.model.geometry import Rect
from quicksand_tui.pixels.halfcells import HalfCells

if TYPE_CHECKING:
    from quicksand_tui.pixels.cells import Cells

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
