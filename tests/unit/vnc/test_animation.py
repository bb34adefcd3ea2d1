"""Animated files: what Pillow reads back is what was put in."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from PIL import Image, ImageSequence
from quicksand_vnc import AskedError, check_scale
from quicksand_vnc.animation import SHOWN_MAX_S, Animation, AnimationFormat, fit, scaled_size

from tests.each import each

FORMS = list(AnimationFormat)
LOSSLESS = [AnimationFormat.PNG, AnimationFormat.WEBP]
SIZE = (47, 31)


def read(data: bytes) -> list[tuple[Image.Image, float]]:
    """The pictures, and how many milliseconds each is shown."""
    found = []
    with Image.open(io.BytesIO(data)) as image:
        assert image.info.get("loop") == 0
        for frame in ImageSequence.Iterator(image):
            pixels = frame.convert("RGB")
            found.append((pixels, frame.info["duration"]))
    return found


def written(form: AnimationFormat, shown: list[tuple[Image.Image, float]], end: float) -> bytes:
    file = io.BytesIO()
    animation = Animation(file, form, shown[0][0].size)
    for image, at in shown:
        animation.add(image, at)
    animation.finish(end)
    assert animation.bytes_written == len(file.getvalue())
    return file.getvalue()


def drawn(count: int, colours: int, seed: int = 1) -> list[Image.Image]:
    """Pictures of which each differs from the one before in some rectangle."""
    chance = random.Random(seed)
    palette = [tuple(chance.randbytes(3)) for _ in range(colours)]
    image = Image.new("RGB", SIZE, palette[0])
    found = [image]
    while len(found) < count:
        image = image.copy()
        left, top = chance.randrange(SIZE[0]), chance.randrange(SIZE[1])
        for x in range(left, chance.randint(left + 1, SIZE[0])):
            for y in range(top, chance.randint(top + 1, SIZE[1])):
                image.putpixel((x, y), chance.choice(palette))
        if image.tobytes() != found[-1].tobytes():
            found.append(image)
    return found


@each("form", FORMS)
@each("colours", [2, 3, 200])
def test_few_colours_come_back_exactly(form: AnimationFormat, colours: int) -> None:
    images = drawn(12, colours)
    moments = [number * 0.13 for number in range(len(images))]
    found = read(written(form, list(zip(images, moments, strict=True)), 2.0))
    assert [frame.tobytes() for frame, _ in found] == [image.tobytes() for image in images]
    unit = 10 if form is AnimationFormat.GIF else 1
    ends = [round(moment * 1000 / unit) for moment in (*moments[1:], 2.0)]
    assert [round(shown) for _, shown in found] == [
        (end - start) * unit for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


@each("form", FORMS)
def test_many_colours(form: AnimationFormat) -> None:
    data = random.Random(2).randbytes(3 * SIZE[0] * SIZE[1])
    first = Image.linear_gradient("L").resize(SIZE).convert("RGB")
    second = Image.frombytes("RGB", SIZE, data)
    found = [frame for frame, _ in read(written(form, [(first, 0), (second, 1)], 2))]
    assert len(found) == 2
    if form in LOSSLESS:
        assert found[1].tobytes() == data
    else:
        away = sum(abs(a - b) for a, b in zip(found[1].tobytes(), data, strict=True)) / len(data)
        assert away < 32, "256 colours of 16 million are near each of them"


@each("form", FORMS)
def test_what_stays_costs_nothing(form: AnimationFormat) -> None:
    image, other = drawn(2, 5)
    still = written(form, [(image, 0), *((image.copy(), n / 10) for n in range(1, 50))], 5)
    assert len(still) == len(written(form, [(image, 0)], 5))
    ((frame, shown),) = read(written(form, [(image, 0), (image, 2), (other, 3)], 5))[:1]
    assert (frame.tobytes(), round(shown)) == (image.tobytes(), 3000)


@each("form", FORMS)
def test_a_picture_may_be_shown_longer_than_files_can_say(form: AnimationFormat) -> None:
    image, other = drawn(2, 5)
    long = 3 * SHOWN_MAX_S + 100
    found = read(written(form, [(image, 0), (other, long)], long + 70))
    assert sum(shown for _, shown in found) == pytest.approx(1000 * (long + 70))
    assert {frame.tobytes() for frame, _ in found[:-1]} == {image.tobytes()}
    assert found[-1][0].tobytes() == other.tobytes()
    assert round(found[-1][1]) == 70_000


@each("form", FORMS)
def test_one_picture_is_a_file_too(form: AnimationFormat) -> None:
    with Image.open(io.BytesIO(written(form, [(Image.new("RGB", (1, 1)), 0)], 0))) as image:
        assert image.size == (1, 1)
        image.load()


def test_other_sizes_are_fitted_into_the_first() -> None:
    wide = fit(Image.new("RGB", (200, 50), "red"), (100, 100))
    assert wide.size == (100, 100)
    assert [wide.getpixel((50, y)) for y in (0, 30, 50, 70, 99)] == [
        (0, 0, 0),
        (0, 0, 0),
        (255, 0, 0),
        (0, 0, 0),
        (0, 0, 0),
    ]
    assert fit(Image.new("RGB", (1, 16000), "red"), (100, 100)).getpixel((49, 50)) == (255, 0, 0)
    assert fit(Image.new("RGB", (50, 50), "red"), (100, 100)).getcolors() == [(10000, (255, 0, 0))]


def test_names_and_numbers_that_make_no_sense() -> None:
    assert AnimationFormat.of(Path("a.GIF")) is AnimationFormat.GIF
    assert AnimationFormat.of(Path("a.apng")) is AnimationFormat.PNG
    for name in ("a", "a.jpg", ".gif", "a."):
        with pytest.raises(AskedError, match="no suffix"):
            AnimationFormat.of(Path(name))
    for scale in (0, -1, 8.1, float("nan"), True):
        with pytest.raises(AskedError, match="scale must be"):
            check_scale(scale)
    assert scaled_size(1280, 800, 0.0001) == (1, 1)
    for width, height, scale in ((16384, 16384, 1), (16384, 10, 1), (5120, 2160, 2)):
        with pytest.raises(AskedError, match="too large"):
            scaled_size(width, height, scale)
