"""Reads a guest's PNGs. Pillow gets only the chunks that make the pixels, checked and put together
anew: a PNG may have a million other chunks, or another size further on."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Final

from PIL import Image

HEAD: Final = 33
"""The bytes at the beginning that tell the size: the signature and the first chunk."""
CHUNKS_MAX: Final = 10_000
"""The most chunks: an encoder with a buffer of 1 KiB writes 8000 in the most that is taken."""

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_SIZE: Final = struct.Struct(">8x4x4sII")
_LENGTH_AND_KIND: Final = struct.Struct(">I4s")
_NUMBER: Final = struct.Struct(">I")
_FRAME: Final = 12
"""The bytes of a chunk besides its data."""
_ONCE: Final = (b"IHDR", b"PLTE", b"tRNS")
"""The chunks that describe the pixels, in their order."""


class DamagedError(Exception):
    """The data is no PNG, or a damaged one. The text is for a program, in ASCII."""


def png_size(data: bytes | bytearray) -> tuple[int, int]:
    """Returns the width and height that a PNG claims; at least `HEAD` bytes of it must be there.
    Raises `DamagedError`."""
    if len(data) < HEAD or not data.startswith(_SIGNATURE):
        raise DamagedError("the data is no PNG")
    kind, width, height = _SIZE.unpack_from(data)
    if kind != b"IHDR":
        raise DamagedError("the data is no PNG")
    return width, height


def read_png(data: bytes) -> Image.Image:
    """Returns the picture in the mode RGBA. Raises `DamagedError`, and whatever Pillow raises for
    damaged pixels."""
    size = png_size(data)
    with Image.open(io.BytesIO(_essential(data)), formats=("PNG",)) as image:
        if image.size != size:
            raise DamagedError("the PNG has two sizes")
        return image.convert("RGBA")


def _essential(data: bytes) -> bytes:
    """Returns a PNG with only what Pillow needs, the pixels in one chunk. Raises `DamagedError`."""
    once: dict[bytes, bytes] = {}
    pixels: list[bytes] = []
    view = memoryview(data)
    at = len(_SIGNATURE)
    for _ in range(CHUNKS_MAX):
        if at + _FRAME > len(data):
            raise DamagedError("the PNG is damaged")
        length, kind = _LENGTH_AND_KIND.unpack_from(data, at)
        end = at + _FRAME + length
        if kind == b"IEND":
            chunks = [_chunk(kind, once[kind]) for kind in _ONCE if kind in once]
            last = [_chunk(b"IDAT", b"".join(pixels)), _chunk(b"IEND", b"")]
            return b"".join([_SIGNATURE, *chunks, *last])
        if end > len(data):
            raise DamagedError("the PNG is damaged")
        if kind == b"IDAT" or kind in _ONCE:
            held = view[at + 8 : end - 4]
            if zlib.crc32(view[at + 4 : end - 4]) != _NUMBER.unpack_from(data, end - 4)[0]:
                raise DamagedError("the PNG is damaged")
            if kind == b"IDAT":
                pixels.append(bytes(held))
            elif kind in once:
                raise DamagedError("the PNG is damaged")
            else:
                once[kind] = bytes(held)
        at = end
    raise DamagedError(f"a PNG has at most {CHUNKS_MAX} chunks")


def _chunk(kind: bytes, held: bytes) -> bytes:
    return b"".join(
        [_NUMBER.pack(len(held)), kind, held, _NUMBER.pack(zlib.crc32(held, zlib.crc32(kind)))]
    )
