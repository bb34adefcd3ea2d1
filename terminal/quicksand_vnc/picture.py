"""A picture as a value: in memory, read from a PPM, cut out, scaled, and encoded as PNG or PPM.
With the shape of the pointer, and checks of the numbers that callers give."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, TypeGuard

from quicksand_vnc.errors import AskedError, VncError

if TYPE_CHECKING:
    from PIL.Image import Image


SCALE_MAX = 8.0
ASKED_SIDE_MAX = 2**16 - 1
"""Pixels of a side for which a screen can be asked (RFB, SetDesktopSize: 16 bits)."""

REGION = "a region is (x, y, width, height) in whole pixels, as in (0, 0, 640, 480)"


def is_whole(value: object) -> TypeGuard[int]:
    """Whether ``value`` is a whole number. True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number. True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_region(region: object) -> Rect:
    """``region`` as a rectangle. Raises AskedError if it is not four whole numbers."""
    numbers = tuple(region) if isinstance(region, Iterable) else ()
    if len(numbers) != len(Rect._fields) or not all(map(is_whole, numbers)):
        raise AskedError(f"{region!r} is no region of the screen", hint=REGION)
    return Rect(*numbers)


def check_within(rect: Rect, width: int, height: int) -> None:
    """Raises AskedError if ``rect`` is empty or not within a screen of that size."""
    outside = rect.x + rect.width > width or rect.y + rect.height > height
    if min(rect) < 0 or not rect.width or not rect.height or outside:
        raise AskedError(
            f"the region {tuple(rect)} is not within the screen",
            hint=f"x, y, width and height in pixels; the screen has {width}x{height}",
        )


def check_scale(scale: float) -> float:
    """Return ``scale`` if a picture can be enlarged that much. Raises AskedError."""
    if not is_number(scale) or not 0 < scale <= SCALE_MAX:
        raise AskedError(
            f"scale must be above 0 and at most {SCALE_MAX:g}, not {scale!r}",
            hint="1 leaves the picture as it is, 0.5 halves its width and height",
        )
    return scale


def check_size(width: int, height: int) -> None:
    """Raises AskedError for a size that no display can have."""
    fits = all(is_whole(side) and 0 < side <= ASKED_SIDE_MAX for side in (width, height))
    if not fits or width * height > PIXELS_MAX:
        raise AskedError(
            f"a display cannot have {width!r}x{height!r} pixels",
            hint=f"whole numbers from 1 to {ASKED_SIDE_MAX}, and {PIXELS_MAX} pixels in all, which "
            "is 4096x4096",
        )


SIDE_MAX = 2**14
"""Pixels of a side: virtio-gpu's own limit (Linux, drivers/gpu/drm/virtio, XRES_MAX) and more."""

PICTURE_PIXELS_MAX = 2**25
"""Pixels of a picture, 96 MiB: as many as a screen with 128 MiB of video memory has."""

_HEADER = re.compile(rb"P6\s+(\d{1,5})\s+(\d{1,5})\s+255\s")
HEADER_MAX = 32
"""Bytes within which the header of a PPM file ends."""

FAST = 1
"""zlib's level: a screenshot is meant to be looked at now."""


class Format(StrEnum):
    """The file format of a picture."""

    PNG = "png"
    PPM = "ppm"


def read_size(descriptor: int) -> tuple[int, int]:
    """The width and height of the PPM file at ``descriptor``. Blocks. Raises VncError for anything
    else."""
    return _read_header(descriptor)[:2]


def _read_header(descriptor: int) -> tuple[int, int, int]:
    """Return the width, the height, and the offset of the pixels."""
    match = _HEADER.match(os.pread(descriptor, HEADER_MAX, 0))
    if match is None:
        raise VncError("there is no picture in PPM")
    return int(match[1]), int(match[2]), match.end()


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of a screen."""

    width: int
    height: int
    rgb: bytes = field(repr=False)
    """Red, green, blue: 3 bytes a pixel; rows from the top, without gaps."""

    @classmethod
    def read_ppm(cls, descriptor: int) -> Picture:
        """Read the PPM file (P6) at ``descriptor``, from its beginning. Blocks. Raises VncError for
        anything else, or for a picture that is too large."""
        width, height, start = _read_header(descriptor)
        if width * height > PICTURE_PIXELS_MAX:
            raise VncError(f"the picture has {width}x{height} pixels, too many")
        wanted = width * height * 3
        with os.fdopen(os.dup(descriptor), "rb", 0) as file:
            file.seek(start)
            rgb = file.read(wanted)
        if len(rgb) != wanted:
            raise VncError("the picture in PPM is not whole")
        return cls(width, height, rgb)

    def cut(self, region: tuple[int, int, int, int]) -> Picture:
        """Return the part at (x, y, width, height). Raises AskedError if it is not within the
        picture."""
        rect = check_region(region)
        check_within(rect, self.width, self.height)
        starts = (3 * (y * self.width + rect.x) for y in range(rect.y, rect.y + rect.height))
        rows = [self.rgb[start : start + 3 * rect.width] for start in starts]
        return Picture(rect.width, rect.height, b"".join(rows))

    def scaled(self, factor: float) -> Picture:
        """Return the picture with ``factor`` times as many pixels on each side. Raises AskedError
        if that leaves nothing, or for a factor above SCALE_MAX."""
        check_scale(factor)
        size = max(1, round(self.width * factor)), max(1, round(self.height * factor))
        if size[0] * size[1] > PICTURE_PIXELS_MAX:
            raise AskedError(
                f"a picture of {size[0]}x{size[1]} pixels is too large",
                hint=f"{PICTURE_PIXELS_MAX} pixels are the most; a smaller scale has fewer",
            )
        import PIL.Image as Pillow  # noqa: PLC0415

        made = self.to_image().resize(size, Pillow.Resampling.BILINEAR, reducing_gap=2.0)
        return Picture(*size, made.tobytes())

    def to_image(self) -> Image:
        """The picture as Pillow's."""
        import PIL.Image as Pillow  # noqa: PLC0415

        return Pillow.frombytes("RGB", (self.width, self.height), self.rgb)

    def encode(self, form: Format = Format.PNG) -> bytes:
        """The picture as a file."""
        return self._to_png() if form is Format.PNG else self._to_ppm()

    def _to_ppm(self) -> bytes:
        return b"P6\n%d %d\n255\n" % (self.width, self.height) + self.rgb

    def _to_png(self) -> bytes:
        """PNG (RFC 2083), 8 bits of each colour, rows unfiltered."""
        row = 3 * self.width
        rows = (self.rgb[start : start + row] for start in range(0, len(self.rgb), row))
        packed = zlib.compress(b"\0" + b"\0".join(rows), FAST)
        head = struct.pack(">IIBBBBB", self.width, self.height, 8, 2, 0, 0, 0)
        chunks = [(b"IHDR", head), (b"IDAT", packed), (b"IEND", b"")]
        return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(kind, data) for kind, data in chunks)


def chunk(kind: bytes, data: bytes) -> bytes:
    """A chunk of a PNG file."""
    return b"".join(
        (
            struct.pack(">I", len(data)),
            kind,
            data,
            struct.pack(">I", zlib.crc32(data, zlib.crc32(kind))),
        )
    )


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
    """The shape of a pointer that the viewer must draw. A server that draws it into the picture has
    none."""

    width: int
    height: int
    hot_x: int
    """The pixel of the shape that lies at the pointer's position."""
    hot_y: int
    pixels: bytes = field(repr=False)
    """RGBA, 4 bytes a pixel, rows from the top; the colours are multiplied by alpha already."""


@dataclass(slots=True)
class Framebuffer:
    """The picture of a screen, which changes."""

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

    def to_picture(self) -> Picture:
        """A copy as a `Picture`."""
        rgb = bytearray(3 * self.width * self.height)
        for colour in range(3):
            rgb[colour::3] = self.pixels[colour::BYTES_PER_PIXEL]
        return Picture(self.width, self.height, bytes(rgb))
