"""PNGs of guests: what they hold besides pixels costs nothing, and damage is refused."""

from __future__ import annotations

import zlib
from random import Random
from typing import Any

import pytest
from PIL import Image
from quicksand_pixels.decoding import kitty_reading, png_reading
from quicksand_pixels.decoding.guest_graphics import Decode, Decoded
from quicksand_pixels.decoding.png_reading import CHUNKS_MAX, DamagedError, read_png

from tests.each import each
from tests.unit.pixels.guest import Drawing, chunked, idat, ihdr, noise, png, png_of

END = (b"IEND", b"")
PROFILE = (b"iCCP", b"x\0\0" + zlib.compress(bytes(1 << 20)))
TEXT = (b"zTXt", b"x\0\0" + zlib.compress(bytes(1 << 20)))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that Pillow got."""
    found: list[int] = []
    whole = Image.open

    def note(file: Any, **options: Any) -> Image.Image:
        found.append(len(file.getvalue()))
        return whole(file, **options)

    monkeypatch.setattr(Image, "open", note)
    return found


def test_pillow_gets_nothing_but_the_pixels(opened: list[int]) -> None:
    picture = noise((20, 10), "RGBA")
    data = png(picture)
    fat = data[:33] + png_of(*[PROFILE, TEXT] * 50)[8:] + data[33:]
    assert len(fat) > 50 * 1000
    assert read_png(fat).tobytes() == picture.tobytes()
    assert opened == [len(data)]


def test_pixels_in_many_chunks_are_one_picture(opened: list[int]) -> None:
    kind, pixels = idat(3, 2)
    pieces = [(kind, pixels[at : at + 1]) for at in range(len(pixels))]
    empty = [(kind, b"")] * 1000
    whole = png_of(ihdr(3, 2), (kind, pixels), END)
    assert read_png(png_of(ihdr(3, 2), *empty, *pieces, END)).size == (3, 2)
    assert opened == [len(whole)]


@pytest.mark.parametrize(
    "data",
    [
        png_of(ihdr(1, 1), ihdr(2048, 2048), idat(2048, 2048), END),
        png_of(ihdr(1, 1), *[(b"abCd", b"")] * CHUNKS_MAX, idat(1, 1), END),
        png_of(ihdr(1, 1), *[(b"PLTE", b"abc")] * 2, idat(1, 1), END),
        png_of(ihdr(1, 1), idat(1, 1)),
        png_of(ihdr(1, 1), (b"tEXt", b"abc"))[:-6],
        png_of(ihdr(1, 1), idat(1, 1), END)[:50] + b"x" + png_of(ihdr(1, 1), idat(1, 1), END)[51:],
        b"\x89PNG\r\n\x1a\n",
    ],
    ids=["two sizes", "chunks", "two palettes", "no end", "cut", "damaged", "short"],
)
def test_a_png_that_is_not_sound_is_refused(data: bytes, opened: list[int]) -> None:
    with pytest.raises(DamagedError):
        read_png(data)
    assert opened == []
    assert b";EINVAL:" in Drawing().feed(chunked("a=T,f=100,i=5", data, 4096))


@each(
    ("control", "data"),
    [
        ("f=100,o=z", zlib.compress(png_of(ihdr(1, 1), *[PROFILE] * 100, idat(1, 1), END))),
        ("f=100", png_of(ihdr(1, 1), *[(b"abCd", b"")] * 9000, idat(1, 1), END)),
        ("f=24,s=1,v=1,o=z", b"\x78\x01" + b"\x00\x00\x00\xff\xff" * 40_000),
    ],
    ids=["packed", "chunks", "empty blocks"],
)
def test_many_bytes_of_a_small_picture_are_read_elsewhere(control: str, data: bytes) -> None:
    later: list[Decode] = []

    def elsewhere(decode: Decode, done: Decoded) -> None:
        later.append(decode)

    drawing = Drawing(elsewhere=elsewhere)
    assert drawing.feed(chunked(f"a=T,i=5,{control}", data, 4096)) == b""
    assert len(later) == 1


def test_of_a_large_packed_png_only_the_head_is_unpacked_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unpacked: list[int] = []
    unpack = kitty_reading._unpack

    def note(data: bytes, most: int) -> bytes:
        unpacked.append(min(most, len(data)))
        return unpack(data, most)

    monkeypatch.setattr(kitty_reading, "_unpack", note)
    drawing = Drawing(elsewhere=lambda *_: None)
    large = zlib.compress(png(Image.frombytes("RGB", (300, 300), Random(1).randbytes(270_000))), 0)
    drawing.feed(chunked("a=T,f=100,o=z", large, 4096))
    assert unpacked == [png_reading.HEAD]
    hidden = b"\x78\x01" + b"\x00\x00\x00\xff\xff" * 40_000 + large[2:]
    assert b"EINVAL" in drawing.feed(chunked("a=T,i=5,f=100,o=z", hidden, 4096))


def test_whatever_pillow_raises_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = png(noise((3, 3)))

    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image, "open", fail)
    monkeypatch.setattr(Image, "frombytes", fail)
    drawing = Drawing()
    assert b"EINVAL" in drawing.feed(chunked("a=T,f=100,i=5", whole, 4096))
    assert b"EINVAL" in drawing.feed(chunked("a=T,f=24,s=1,v=1,i=5", b"abc", 4096))
    assert drawing.graphics.places.pixels == 0
