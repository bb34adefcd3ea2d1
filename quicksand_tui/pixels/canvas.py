"""Remembers what the terminal shows, and finds the differences of a frame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from PIL import Image

from quicksand_tui.model.geometry import Rect
from quicksand_tui.pixels.scaling import Frame, scale

if TYPE_CHECKING:
    from quicksand_tui.pixels.viewport import Viewport


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
