"""Small pictures as half cells."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from quicksand_pixels.encoding.half_cells import KEPT_BITS, PIXELS_MAX, fit, read_png


def png(image: Image.Image, form: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, form)
    return file.getvalue()


@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 90), st.integers(1, 50))
def test_it_fits_and_keeps_its_shape(width: int, height: int, columns: int, rows: int) -> None:
    cells = fit(Image.new("RGB", (width, height), "white"), columns, rows)
    assert 1 <= len(cells) <= rows
    assert {len(row) for row in cells} <= set(range(1, min(columns, width) + 1))
    assert {cell for row in cells for cell in row} == {b"\xff" * 6}
    factor = min(columns / width, 2 * rows / height, 1.0)
    assert abs(len(cells[0]) - width * factor) <= 1
    assert abs(2 * len(cells) - height * factor) <= 2


@given(st.binary(min_size=3 * 8 * 6, max_size=3 * 8 * 6))
def test_pixels_are_where_they_were(rgb: bytes) -> None:
    image = Image.frombytes("RGB", (8, 6), rgb)
    cells = fit(image, 8, 3)
    for y in range(6):
        for x in range(8):
            half = cells[y // 2][x][3 * (y % 2) : 3 * (y % 2) + 3]
            found = image.getpixel((x, y))
            assert isinstance(found, tuple)
            assert [part & KEPT_BITS for part in half] == [part & KEPT_BITS for part in found]


def test_no_room_holds_nothing() -> None:
    assert fit(Image.new("RGB", (8, 6)), 0, 3) == ()


@given(st.binary(max_size=300))
def test_what_is_no_png_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no PNG"):
        read_png(data)


def test_other_files_damaged_and_large_ones_are_refused() -> None:
    image = Image.effect_noise((64, 64), 90)
    assert read_png(png(image)).size == (64, 64)
    with pytest.raises(ValueError, match="no PNG"):
        read_png(png(image, "GIF"))
    with pytest.raises(ValueError, match="no PNG"):
        read_png(png(image)[:200])
    with pytest.raises(ValueError, match="pixels"):
        read_png(png(Image.new("1", (PIXELS_MAX // 1000 + 1, 1000))))
    claim = struct.pack(">II", 60_000, 60_000)
    bomb = png(Image.new("1", (8, 8))).replace(struct.pack(">II", 8, 8), claim, 1)
    head = bomb[12:29]  # the kind of the chunk and its data, which its checksum is of
    bomb = bomb[:29] + struct.pack(">I", zlib.crc32(head)) + bomb[33:]
    with pytest.raises(ValueError, match="pixels"):
        read_png(bomb)
