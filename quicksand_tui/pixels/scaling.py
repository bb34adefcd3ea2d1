"""Scales the visible part of a frame, and of that only the part that changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from quicksand_tui.model.geometry import Rect
    from quicksand_tui.pixels.viewport import Viewport

MARGIN_CELLS = 1
"""Cells around a changed part that are scaled too, so that its edges are as in the whole."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A guest's screen."""

    width: int
    height: int
    pixels: bytes | bytearray
    """Rows of red, green, blue and one unused byte."""
    stride: int = 0
    """The bytes from row to row; 0 if they follow each other."""

    def image(self) -> Image.Image:
        """Returns the screen as a picture, not copied. Raises ValueError if the sizes disagree."""
        stride = self.stride or 4 * self.width
        if stride < 4 * self.width or len(self.pixels) < stride * self.height:
            raise ValueError(f"{len(self.pixels)} bytes are no {self.width}x{self.height} pixels")
        size = (self.width, self.height)
        return Image.frombuffer("RGBX", size, self.pixels, "raw", "RGBX", stride, 1)


SAME = 0.02
"""The least difference of a scale from 1 that counts: scaling by less would only lose or double a
pixel here and there, as a grid of cells has no place for a fraction of a cell."""


def _resampling(across: float, along: float) -> Image.Resampling:
    """Returns the way to scale so many pixels of the frame to one."""
    if abs(across - 1) < SAME and abs(along - 1) < SAME:
        return Image.Resampling.NEAREST
    if across > 1 or along > 1:
        return Image.Resampling.BOX
    return Image.Resampling.BILINEAR


def scale(frame: Frame, view: Viewport, cell: tuple[int, int], part: Rect) -> Image.Image:
    """Returns the picture of ``part`` of the view's target, in cells from the target's corner.
    ``cell`` is the size in pixels of a cell of the result."""
    wide, high = cell
    source, target = view.source, view.target
    left, top = max(0, part.x - MARGIN_CELLS), max(0, part.y - MARGIN_CELLS)
    right = min(target.width, part.x + part.width + MARGIN_CELLS)
    bottom = min(target.height, part.y + part.height + MARGIN_CELLS)
    across = (source.right - source.left) / target.width
    along = (source.bottom - source.top) / target.height
    box = (
        source.left + left * across,
        source.top + top * along,
        min(source.left + right * across, frame.width),
        min(source.top + bottom * along, frame.height),
    )
    size = ((right - left) * wide, (bottom - top) * high)
    picture = frame.image().resize(size, _resampling(across / wide, along / high), box=box)
    x, y = (part.x - left) * wide, (part.y - top) * high
    return picture.crop((x, y, x + part.width * wide, y + part.height * high)).convert("RGB")
