"""A picture in memory, and the shape of the guest's pointer: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

BYTES_PER_PIXEL = 4

PIXELS_MAX = 2**24
"""Pixels of a picture, 64 MiB."""


class Rect(NamedTuple):
    """A rectangle within a picture, in pixels."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The shape of a pointer that the host must draw for the guest. A guest with a software cursor
    draws it into the picture and has none."""

    width: int
    height: int
    hot_x: int
    """The pixel of the shape that lies at the pointer's position."""
    hot_y: int
    pixels: bytes = field(repr=False)
    """RGBA, 4 bytes a pixel, rows from the top; the colours are multiplied by alpha already."""


@dataclass(slots=True)
class Framebuffer:
    """A picture of the guest's screen."""

    width: int
    height: int
    pixels: bytearray = field(repr=False)
    """4 bytes a pixel: red, green, blue, and one without a meaning; rows from the top, without
    gaps."""

    @classmethod
    def blank(cls, width: int, height: int) -> Framebuffer:
        """A black picture. Raises ValueError for one of more than PIXELS_MAX."""
        if width * height > PIXELS_MAX:
            raise ValueError(f"a picture of {width}x{height} pixels is too large")
        return cls(width, height, bytearray(width * height * BYTES_PER_PIXEL))

    @property
    def whole(self) -> Rect:
        return Rect(0, 0, self.width, self.height)

    def contains(self, rect: Rect) -> bool:
        """Whether ``rect`` lies within the picture."""
        return rect.x + rect.width <= self.width and rect.y + rect.height <= self.height

    def put(self, rect: Rect, data: bytes | bytearray | memoryview) -> None:
        """Replace the pixels of ``rect``, which lies within the picture, by ``data``."""
        row, stride = rect.width * BYTES_PER_PIXEL, self.width * BYTES_PER_PIXEL
        start = rect.y * stride + rect.x * BYTES_PER_PIXEL
        if row == stride:
            self.pixels[start : start + len(data)] = data
            return
        for number in range(rect.height):
            at = start + number * stride
            self.pixels[at : at + row] = data[number * row : (number + 1) * row]
