"""Pictures: what is written is read again, and its size is bounded."""

from __future__ import annotations

import io
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from PIL import Image
from quicksand_vnc import AskedError, Format, Framebuffer, Picture, Rect, VncError, read_size
from quicksand_vnc.picture import PICTURE_PIXELS_MAX

from tests.each import each

RANDOM = Picture(37, 23, random.Random(1).randbytes(37 * 23 * 3))


@contextmanager
def written(data: bytes) -> Iterator[int]:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        yield file.fileno()


def test_a_ppm_is_read() -> None:
    with written(RANDOM.encode(Format.PPM)) as descriptor:
        assert Picture.read_ppm(descriptor) == RANDOM


@each("form", Format)
def test_others_read_what_is_written(form: Format) -> None:
    with Image.open(io.BytesIO(RANDOM.encode(form))) as image:
        assert (image.size, image.mode) == ((37, 23), "RGB")
        assert image.tobytes() == RANDOM.rgb


@each(
    "data",
    [b"", b"P5\n1 1\n255\n0", b"P6\n1 1\n65535\n000000", b"P6\n0x1 1\n255\n", b"P6 123456 1 255\n"],
)
def test_what_is_no_picture(data: bytes) -> None:
    with written(data) as descriptor, pytest.raises(VncError, match="no picture in PPM"):
        Picture.read_ppm(descriptor)


def test_half_a_picture() -> None:
    half = RANDOM.encode(Format.PPM)[:-1]
    with written(half) as descriptor, pytest.raises(VncError, match="is not whole"):
        Picture.read_ppm(descriptor)


def test_a_huge_screen_is_not_read() -> None:
    with (
        written(b"P6\n16384 16384\n255\n") as descriptor,
        pytest.raises(VncError, match="16384x16384 pixels, too many"),
    ):
        Picture.read_ppm(descriptor)


def test_its_size_alone_is() -> None:
    with written(b"P6\n16384 16384\n255\n") as descriptor:
        assert read_size(descriptor) == (16384, 16384)
    with written(b"P7\n1 1\n255\n") as descriptor, pytest.raises(VncError):
        read_size(descriptor)


def test_a_part_is_cut_out() -> None:
    part = RANDOM.cut((5, 7, 11, 3))
    assert part.to_image().tobytes() == RANDOM.to_image().crop((5, 7, 16, 10)).tobytes()
    assert RANDOM.cut((0, 0, 37, 23)) == RANDOM


@each("region", [(0, 0, 38, 1), (0, 0, 0, 1), (-1, 0, 2, 2), (36, 22, 2, 1), (0, 22, 1, 2)])
def test_a_part_is_within(region: tuple[int, int, int, int]) -> None:
    with pytest.raises(AskedError, match="not within the screen") as caught:
        RANDOM.cut(region)
    assert "37x23" in caught.value.hint


def test_scaling() -> None:
    half = RANDOM.scaled(0.5)
    assert (half.width, half.height) == (18, 12) and len(half.rgb) == 18 * 12 * 3
    assert RANDOM.scaled(0.001).width == 1


@each("region", [(1, 2, 3), (1.5, 0, 5, 5), (0, 0, True, 1), "0,0,5,5", 5, (0, 0, 5, "5")])
def test_what_is_no_region(region: Any) -> None:
    with pytest.raises(AskedError, match="is no region of the screen") as caught:
        RANDOM.cut(region)
    assert "(0, 0, 640, 480)" in caught.value.hint


@each("factor", [0, -1, 8.5, float("inf"), float("nan"), True, "x", None])
def test_factors_have_limits(factor: Any) -> None:
    with pytest.raises(AskedError, match="scale must be") as caught:
        RANDOM.scaled(factor)
    assert "0.5 halves" in caught.value.hint


def test_a_picture_does_not_become_too_large() -> None:
    wide = Picture(PICTURE_PIXELS_MAX // 16, 1, b"")
    with pytest.raises(AskedError, match="too large"):
        wide.scaled(8)


def test_a_frame_becomes_a_picture() -> None:
    frame = Framebuffer.blank(2, 1)
    frame.put(Rect(1, 0, 1, 1), b"\1\2\3\xff")
    assert frame.to_picture() == Picture(2, 1, bytes(3) + b"\1\2\3")
