"""Writes pictures one after the other into an animated file: GIF, PNG or WebP.

Pillow packs each picture, but would hold all of them until the last. So the files are put together
here, and only the last picture is kept. A picture is written when the next one ends its time, and
only the part of it that differs from the one before.
"""

from __future__ import annotations

import io
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from PIL import Image as Pillow
from PIL import ImageChops

from quicksand_vnc.errors import AskedError
from quicksand_vnc.picture import FAST, PIXELS_MAX, Rect, chunk

if TYPE_CHECKING:
    from PIL.Image import Image

SIDE_MAX = 16383
"""Pixels of a side: WebP's limit, the smallest of the three."""

SHOWN_MAX_S = 600.0
"""The most seconds for which a file can show one picture (GIF: 655). A picture that is shown longer
is repeated in one pixel."""

COLOURS = 256
"""The most colours of a GIF; a picture with more gets the best ones."""


class AnimationFormat(StrEnum):
    """The file format of a recording."""

    GIF = "gif"
    PNG = "png"
    WEBP = "webp"

    @classmethod
    def of(cls, path: Path) -> AnimationFormat:
        """The format that the path's suffix names. Raises AskedError."""
        suffix = path.suffix.lower().removeprefix(".")
        try:
            return cls.PNG if suffix == "apng" else cls(suffix)
        except ValueError:
            raise AskedError(
                f"the name {path.name!r} has no suffix of an animation: it must end with .gif, "
                ".png or .webp"
            ) from None


def scaled_size(width: int, height: int, scale: float) -> tuple[int, int]:
    """The size of a recording of a screen. Raises AskedError if it is too large."""
    size = max(1, round(width * scale)), max(1, round(height * scale))
    if max(size) > SIDE_MAX or size[0] * size[1] > PIXELS_MAX:
        raise AskedError(f"a recording of {size[0]}x{size[1]} pixels is too large")
    return size


def fit(image: Image, size: tuple[int, int]) -> Image:
    """Return the picture scaled to fit a size, with black beside it."""
    if image.size == size:
        return image
    factor = min(size[0] / image.width, size[1] / image.height)
    inner = max(1, round(image.width * factor)), max(1, round(image.height * factor))
    small = image.resize(inner, Pillow.Resampling.BILINEAR, reducing_gap=2.0)
    if inner == size:
        return small
    whole = Pillow.new("RGB", size)
    whole.paste(small, ((size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2))
    return whole


class Animation:
    """An animated file of RGB pictures of one size, shown in an endless loop. All methods block,
    and raise OSError."""

    def __init__(self, file: BinaryIO, form: AnimationFormat, size: tuple[int, int]) -> None:
        """``file`` is empty, can be read at any position, and stays open."""
        self._file = file
        self._form = _FORMS[form](size)
        self._shown: Image | None = None
        """The picture that is shown now, with the place and packing of its changes."""
        self._box = Rect(0, 0, *size)
        self._packed = b""
        self._since_s = 0.0
        self.pictures = 0
        """The number of pictures that differ from the one before."""
        file.write(self._form.head())
        file.flush()  # a full disk is reported at once

    @property
    def bytes_written(self) -> int:
        return self._file.tell()

    def add(self, image: Image, at_s: float) -> bool:
        """Show a picture from ``at_s`` on, in rising seconds; returns whether it differs from the
        shown one."""
        box = Rect(0, 0, *image.size)
        if self._shown is not None:
            found = ImageChops.difference(image, self._shown).getbbox()
            if found is None:
                return False
            left, top = self._form.aligned(found[0]), self._form.aligned(found[1])
            box = Rect(left, top, found[2] - left, found[3] - top)
        packed = self._form.pack(_cut(image, box))
        self._write(at_s)
        self._shown, self._box, self._packed, self._since_s = image, box, packed, at_s
        self.pictures += 1
        return True

    def finish(self, at_s: float) -> None:
        """Show the last picture until then, and complete the file."""
        self._write(at_s)
        self._file.write(self._form.tail())
        end = self._file.tell()
        for place, data in self._form.afterwards(end):
            self._file.seek(place)
            self._file.write(data)
        self._file.seek(end)
        self._file.flush()

    def _write(self, until_s: float) -> None:
        """Write the picture that was shown until then."""
        if self._shown is None:
            return
        while until_s - self._since_s > SHOWN_MAX_S:
            next_s = self._since_s + SHOWN_MAX_S
            self._file.write(self._form.frame(self._box, self._packed, self._since_s, next_s))
            self._box, self._since_s = Rect(0, 0, 1, 1), next_s
            self._packed = self._form.pack(_cut(self._shown, self._box))
        self._file.write(self._form.frame(self._box, self._packed, self._since_s, until_s))


def _cut(image: Image, box: Rect) -> Image:
    return image.crop((box.x, box.y, box.x + box.width, box.y + box.height))


class _Form(ABC):
    """One format: the packing of a picture, and the parts of the file around it."""

    def __init__(self, size: tuple[int, int]) -> None:
        self.size = size

    @abstractmethod
    def head(self) -> bytes:
        """The beginning of the file."""

    @abstractmethod
    def pack(self, image: Image) -> bytes:
        """The pixels of a part."""

    @abstractmethod
    def frame(self, box: Rect, packed: bytes, start_s: float, end_s: float) -> bytes:
        """A part, shown from and until these seconds of the whole."""

    def aligned(self, edge: int) -> int:
        """The left or upper edge that a part may have, at or before ``edge``."""
        return edge

    def tail(self) -> bytes:
        """The end of the file."""
        return b""

    def afterwards(self, end: int) -> Iterator[tuple[int, bytes]]:
        """Offsets and data that are known only at the end of a file of ``end`` bytes."""
        return iter(())


def _ticks(start_s: float, end_s: float, per_second: int) -> int:
    """Return a duration in a format's unit. Rounding errors do not add up."""
    return max(1, round(end_s * per_second) - round(start_s * per_second))


class _Gif(_Form):
    """GIF89a."""

    def head(self) -> bytes:
        screen = struct.pack("<6sHHBBB", b"GIF89a", *self.size, 0x70, 0, 0)
        return screen + b"\x21\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"  # for ever

    def pack(self, image: Image) -> bytes:
        few = image.getcolors(COLOURS) is not None
        # The median cut keeps 256 colours as they are; the octree takes a fifth of its time.
        method = Pillow.Quantize.MEDIANCUT if few else Pillow.Quantize.FASTOCTREE
        found = image.quantize(COLOURS, method, dither=Pillow.Dither.NONE)
        file = io.BytesIO()
        found.save(file, "GIF", interlace=False)
        return _gif_image(file.getvalue())

    def frame(self, box: Rect, packed: bytes, start_s: float, end_s: float) -> bytes:
        # Programs show a picture of less than 2/100 s for 10/100.
        shown = max(2, _ticks(start_s, end_s, 100))
        control = struct.pack("<4sHBB", b"\x21\xf9\x04\x04", shown, 0, 0)  # the next is laid on it
        return control + struct.pack("<BHHHH", 0x2C, *box) + packed

    def tail(self) -> bytes:
        return b"\x3b"


def _gif_image(data: bytes) -> bytes:
    """Return the rest of the only image in a GIF file that Pillow wrote, after its place and size,
    with the colours from the file's beginning."""
    flags = data[10]
    colours = 3 << (flags & 7) + 1 if flags & 0x80 else 0
    at = 13 + colours
    while data[at] == 0x21:  # extensions
        at = _after_blocks(data, at + 2)
    own = data[at + 9]
    if own & 0x80:
        return data[at + 9 : _after_blocks(data, at + 11 + (3 << (own & 7) + 1))]
    table = bytes([0x80 | flags & 7]) + data[13 : 13 + colours]
    return table + data[at + 10 : _after_blocks(data, at + 11)]


def _after_blocks(data: bytes, at: int) -> int:
    while data[at]:
        at += 1 + data[at]
    return at + 1


class _Png(_Form):
    """PNG with the chunks of animations (PNG, third edition, 11.3.2.1)."""

    def __init__(self, size: tuple[int, int]) -> None:
        super().__init__(size)
        self._frames = 0
        self._sequence = 0

    def head(self) -> bytes:
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", *self.size, 8, 2, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + head + self._control()

    def _control(self) -> bytes:
        return chunk(b"acTL", struct.pack(">II", self._frames, 0))

    def pack(self, image: Image) -> bytes:
        file = io.BytesIO()
        image.save(file, "PNG", compress_level=FAST)
        return b"".join(data for kind, data in _png_chunks(file.getvalue()) if kind == b"IDAT")

    def frame(self, box: Rect, packed: bytes, start_s: float, end_s: float) -> bytes:
        unit = 1000 if end_s - start_s < 65 else 100  # the number has 16 bits
        shown = _ticks(start_s, end_s, unit)
        place = struct.pack(">IIII", box.width, box.height, box.x, box.y)
        control = chunk(b"fcTL", self._next() + place + struct.pack(">HHBB", shown, unit, 0, 0))
        self._frames += 1
        if self._frames == 1:
            return control + chunk(b"IDAT", packed)
        return control + chunk(b"fdAT", self._next() + packed)

    def _next(self) -> bytes:
        self._sequence += 1
        return struct.pack(">I", self._sequence - 1)

    def tail(self) -> bytes:
        return chunk(b"IEND", b"")

    def afterwards(self, end: int) -> Iterator[tuple[int, bytes]]:
        yield 33, self._control()  # behind the signature and IHDR


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += 12 + length


class _Webp(_Form):
    """WebP without loss (RFC 9649)."""

    def head(self) -> bytes:
        size = _three(self.size[0] - 1) + _three(self.size[1] - 1)
        features = b"VP8X" + struct.pack("<IBxxx", 10, 0x02) + size
        return b"RIFF\0\0\0\0WEBP" + features + b"ANIM" + struct.pack("<IIH", 6, 0xFF000000, 0)

    def aligned(self, edge: int) -> int:
        return edge & ~1

    def pack(self, image: Image) -> bytes:
        file = io.BytesIO()
        image.save(file, "WEBP", lossless=True, quality=0, method=0)
        return file.getvalue()[12:]  # behind RIFF's header

    def frame(self, box: Rect, packed: bytes, start_s: float, end_s: float) -> bytes:
        numbers = (box.x // 2, box.y // 2, box.width - 1, box.height - 1)
        shown = _ticks(start_s, end_s, 1000)
        head = b"".join(_three(number) for number in (*numbers, shown)) + b"\x02"  # laid on it
        return b"ANMF" + struct.pack("<I", len(head) + len(packed)) + head + packed

    def afterwards(self, end: int) -> Iterator[tuple[int, bytes]]:
        yield 4, struct.pack("<I", end - 8)


def _three(number: int) -> bytes:
    return number.to_bytes(3, "little")


_FORMS: dict[AnimationFormat, type[_Form]] = {
    AnimationFormat.GIF: _Gif,
    AnimationFormat.PNG: _Png,
    AnimationFormat.WEBP: _Webp,
}
