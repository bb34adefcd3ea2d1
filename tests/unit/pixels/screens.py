"""Screens of guests for tests."""

from __future__ import annotations

import random

from PIL import Image, ImageDraw
from quicksand_pixels import Rect
from quicksand_pixels.encoding.canvas import Frame


def desktop(width: int = 640, height: int = 400, *, windows: int = 6, seed: int = 1) -> Image.Image:
    """A screen as a desktop has it: areas, lines and a gradient."""
    chance = random.Random(seed)
    gradient = Image.linear_gradient("L").resize((width, height))
    picture = Image.merge(
        "RGB", (gradient, gradient.rotate(180), Image.new("L", gradient.size, 90))
    )
    draw = ImageDraw.Draw(picture)
    for _ in range(windows):
        x, y = chance.randrange(width - 80), chance.randrange(height - 60)
        colour = tuple(chance.randrange(256) for _ in range(3))
        draw.rectangle((x, y, x + 70, y + 50), fill=colour, outline="white")
        draw.text((x + 4, y + 4), "file", fill="black")
    return picture


def frame_of(picture: Image.Image) -> Frame:
    return Frame(*picture.size, bytearray(picture.convert("RGBX").tobytes()))


def whole(picture: Image.Image) -> Rect:
    return Rect(0, 0, *picture.size)
