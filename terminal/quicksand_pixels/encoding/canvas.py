"""Remembers what the terminal shows, and finds the differences of a frame."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from PIL import Image

from quicksand_pixels.viewport import Rect

if TYPE_CHECKING:
    from quicksand_pixels.viewport import Viewport


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


class Encoder(Protocol):
    """Makes the bytes that draw pictures with one of the terminal's abilities."""

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height in pixels that it draws for each cell."""

    @property
    def stays(self) -> bool:
        """Whether its drawings stay until something is written over them."""

    def draw(self, picture: Image.Image, corner: tuple[int, int], part: Rect) -> bytes:
        """Returns the bytes that draw ``part``, in cells, of a picture whose top left cell is at
        ``corner`` of the terminal, counted from 0; b"" if that is shown already."""

    def forget(self) -> bytes:
        """Returns the bytes that remove all drawings that are no text. Everything is new after."""


class Canvas:
    """One view in a terminal, drawn by one encoder."""

    def __init__(self, encoder: Encoder, corner: tuple[int, int] = (0, 0)) -> None:
        """``corner`` is the view's top left cell in the terminal, counted from 0."""
        self._encoder = encoder
        self._corner = corner
        self._view: Viewport | None = None
        self._picture: Image.Image | None = None

    def draw(self, frame: Frame, view: Viewport, damage: Iterable[Rect]) -> bytes:
        """Returns the bytes that bring the terminal from the last frame to this one; b"" if nothing
        visible has changed. ``damage`` may have changed, in pixels of the frame; a view that is not
        the last one is drawn whole."""
        target = view.target
        before = b""
        if view != self._view or self._picture is None:
            before = self._encoder.forget() + self._erase_but(target)
            parts = [Rect(0, 0, target.width, target.height)]
            wide, high = self._encoder.cell
            self._picture = Image.new("RGB", (target.width * wide, target.height * high))
            self._view = view
        else:
            parts = [view.cells_of(rect) for rect in damage]
        part = _around(found for found in parts if found.width and found.height)
        if not part.width:
            return before
        wide, high = self._encoder.cell
        self._picture.paste(scale(frame, view, (wide, high), part), (part.x * wide, part.y * high))
        corner = (self._corner[0] + target.x, self._corner[1] + target.y)
        return before + self._encoder.draw(self._picture, corner, part)

    def forget(self) -> bytes:
        """Returns the bytes that remove the picture; the next frame is drawn whole."""
        removed = self._encoder.forget() + self._erase_but(None)
        self._view = None
        return removed

    def _erase_but(self, target: Rect | None) -> bytes:
        """Returns the bytes that erase the last view, unless the next one covers it."""
        if self._view is None or not self._encoder.stays or self._view.target == target:
            return b""
        x, y, width, height = self._view.target
        left, top = self._corner[0] + x + 1, self._corner[1] + y + 1
        rows = (b"\x1b[%d;%dH\x1b[%dX" % (top + row, left, width) for row in range(height))
        return b"\x1b[m" + b"".join(rows)


def _around(parts: Iterable[Rect]) -> Rect:
    """Returns the smallest rectangle around others."""
    found = list(parts)
    if not found:
        return Rect(0, 0, 0, 0)
    left, top = min(part.x for part in found), min(part.y for part in found)
    right = max(part.x + part.width for part in found)
    bottom = max(part.y + part.height for part in found)
    return Rect(left, top, right - left, bottom - top)
