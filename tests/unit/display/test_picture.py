"""Pictures: what is written is read again, and what QEMU writes is bounded."""

from __future__ import annotations

import io
import os
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from quicksand.base.errors import ConfigError, DisplayError, PathError
from quicksand.display.picture import PICTURE_PIXELS_MAX, Format, Picture, read_size, write_picture

from quicksand_tui.model.remedy_words import hint_of

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


@pytest.mark.parametrize("form", Format)
def test_others_read_what_is_written(form: Format) -> None:
    with Image.open(io.BytesIO(RANDOM.encode(form))) as image:
        assert (image.size, image.mode) == ((37, 23), "RGB")
        assert image.tobytes() == RANDOM.rgb


@pytest.mark.parametrize(
    "data",
    [b"", b"P5\n1 1\n255\n0", b"P6\n1 1\n65535\n000000", b"P6\n0x1 1\n255\n", b"P6 123456 1 255\n"],
)
def test_what_is_no_picture(data: bytes) -> None:
    with written(data) as descriptor, pytest.raises(DisplayError, match="did not write a picture"):
        Picture.read_ppm(descriptor)


def test_half_a_picture() -> None:
    half = RANDOM.encode(Format.PPM)[:-1]
    with written(half) as descriptor, pytest.raises(DisplayError, match="the whole picture"):
        Picture.read_ppm(descriptor)


def test_a_huge_screen_is_not_read() -> None:
    with (
        written(b"P6\n16384 16384\n255\n") as descriptor,
        pytest.raises(DisplayError, match="16384x16384 pixels, too many"),
    ):
        Picture.read_ppm(descriptor)


def test_its_size_alone_is() -> None:
    with written(b"P6\n16384 16384\n255\n") as descriptor:
        assert read_size(descriptor) == (16384, 16384)
    with written(b"P7\n1 1\n255\n") as descriptor, pytest.raises(DisplayError):
        read_size(descriptor)


def test_a_part_is_cut_out() -> None:
    part = RANDOM.cut((5, 7, 11, 3))
    assert part.to_image().tobytes() == RANDOM.to_image().crop((5, 7, 16, 10)).tobytes()
    assert RANDOM.cut((0, 0, 37, 23)) == RANDOM


@pytest.mark.parametrize(
    "region", [(0, 0, 38, 1), (0, 0, 0, 1), (-1, 0, 2, 2), (36, 22, 2, 1), (0, 22, 1, 2)]
)
def test_a_part_is_within(region: tuple[int, int, int, int]) -> None:
    with pytest.raises(ConfigError, match="not within the screen") as caught:
        RANDOM.cut(region)
    assert "37x23" in caught.value.hint


def test_scaling() -> None:
    half = RANDOM.scaled(0.5)
    assert (half.width, half.height) == (18, 12) and len(half.rgb) == 18 * 12 * 3
    assert RANDOM.scaled(0.001).width == 1


@pytest.mark.parametrize(
    "region", [(1, 2, 3), (1.5, 0, 5, 5), (0, 0, True, 1), "0,0,5,5", 5, (0, 0, 5, "5")]
)
def test_what_is_no_region(region: Any) -> None:
    with pytest.raises(ConfigError, match="is no region of the screen") as caught:
        RANDOM.cut(region)
    assert "(0, 0, 640, 480)" in caught.value.hint


@pytest.mark.parametrize("factor", [0, -1, 8.5, float("inf"), float("nan"), True, "x", None])
def test_factors_have_limits(factor: Any) -> None:
    with pytest.raises(ConfigError, match="scale must be") as caught:
        RANDOM.scaled(factor)
    assert "0.5 halves" in caught.value.hint


def test_a_picture_does_not_become_too_large() -> None:
    wide = Picture(PICTURE_PIXELS_MAX // 16, 1, b"")
    with pytest.raises(ConfigError, match="too large"):
        wide.scaled(8)


@pytest.mark.parametrize(
    ("wanted", "name", "form"),
    [
        (None, None, Format.PNG),
        (None, "a.png", Format.PNG),
        (None, "a.PPM", Format.PPM),
        (None, "a", Format.PNG),
        ("ppm", "a.png", Format.PPM),
        ("png", "a.shot", Format.PNG),
        ("PNG", None, Format.PNG),
    ],
)
def test_the_format(wanted: str | None, name: str | None, form: Format) -> None:
    assert Format.choose(wanted, Path(name) if name else None) is form


def test_a_format_that_is_none() -> None:
    for wanted in ("gif", "jpg", 5):
        with pytest.raises(
            ConfigError, match=f"{wanted!r} is not a picture format: choose png or ppm"
        ):
            Format.choose(wanted, None)  # type: ignore[arg-type]


def test_a_name_of_another_format_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'a\.JPG' has no suffix") as caught:
        Format.choose(None, Path("/tmp/a.JPG"))
    assert "end with .png or .ppm" in caught.value.hint and "--format" in hint_of(caught.value)


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "shot.png"
    path.write_bytes(b"old")
    write_picture(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["shot.png"]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    other, link = tmp_path / "other", tmp_path / "shot.png"
    other.write_bytes(b"theirs")
    link.symlink_to(other)
    write_picture(link, b"new")
    assert other.read_bytes() == b"theirs"
    assert not link.is_symlink() and link.read_bytes() == b"new"


def test_a_directory_stays(tmp_path: Path) -> None:
    (tmp_path / "shot.png").mkdir()
    with pytest.raises(PathError, match="it is a directory") as caught:
        write_picture(tmp_path / "shot.png", b"new")
    assert "name a file in it" in caught.value.hint
    with pytest.raises(PathError, match=f"there is no directory {tmp_path}/nowhere") as caught:
        write_picture(tmp_path / "nowhere" / "shot.png", b"new")
    assert "make that directory" in caught.value.hint
    assert os.listdir(tmp_path) == ["shot.png"]
