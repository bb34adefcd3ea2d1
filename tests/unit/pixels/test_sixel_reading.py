"""Sixels of guests' programs: each pixel is as the program drew it, however it drew it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageChops
from quicksand_pixels.decoding import sixel_reading
from quicksand_pixels.decoding.sixel_reading import SixelPicture, SixelReader
from quicksand_pixels.encoding.sixel import encode_sixels

from tests.conftest import examples
from tests.each import each
from tests.unit.pixels.guest import BLUE, GREEN, RED, noise


def read(text: str, parameters: str = "7;1", *, step: int = 0) -> SixelPicture | None:
    found: list[SixelPicture] = []
    reader = SixelReader(parameters, found.append)
    for at in range(0, len(text), step or len(text) or 1):
        reader.feed(text[at : at + (step or len(text))])
    reader.end()
    return found[0] if found else None


def image_of(text: str, parameters: str = "7;1", *, step: int = 0) -> Image.Image:
    found = read(text, parameters, step=step)
    assert found is not None
    return found.image


def column(image: Image.Image, x: int) -> list[tuple[int, ...] | None]:
    """The pixels of a column; None where it is transparent."""
    pixels = [image.getpixel((x, y)) for y in range(image.height)]
    return [pixel[:3] if pixel[3] else None for pixel in pixels]  # type: ignore[index]


@each("step", [0, 1, 7, 4096])
@each("size", [(1, 1), (5, 6), (64, 13), (100, 60), (37, 100)])
def test_a_picture_that_pillow_reduced_comes_back_pixel_by_pixel(
    size: tuple[int, int], step: int
) -> None:
    picture = noise(size)
    drawn = encode_sixels(picture).decode()
    head = drawn.index("q")
    image = image_of(drawn[head + 1 : -2], drawn[2:head], step=step)
    reduced = picture.quantize(128, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    assert image.size == size
    assert image.getchannel("A").getextrema() == (255, 255)
    differs = ImageChops.difference(image.convert("RGB"), reduced.convert("RGB"))
    # Colours are percentages, so they lose a little.
    assert max(high for _, high in differs.getextrema()) <= 1  # type: ignore[misc]


def test_bits_are_pixels_from_top_to_bottom() -> None:
    image = image_of("#1;2;100;0;0#1@ABCO_~")
    assert image.size == (7, 6)
    assert column(image, 0) == [RED, None, None, None, None, None]
    assert column(image, 1) == [None, RED, None, None, None, None]
    assert column(image, 2) == [RED, RED, None, None, None, None]
    assert column(image, 5) == [None] * 5 + [RED]
    assert column(image, 6) == [RED] * 6


def test_a_return_draws_over_the_row_and_a_new_line_below_it() -> None:
    image = image_of("#1;2;100;0;0#2;2;0;100;0#1!3@$#2A-#1~")
    assert image.size == (3, 12)
    assert column(image, 0) == [RED, GREEN, None, None, None, None] + [RED] * 6
    assert column(image, 1) == [RED, *[None] * 11]


def test_hues_begin_with_blue() -> None:
    image = image_of("#1;1;0;50;100#1~#1;1;120;50;100#1~#1;1;240;50;100#1~#1;1;0;100;0#1~")
    assert [image.getpixel((x, 0))[:3] for x in range(4)] == [  # type: ignore[index]
        BLUE,
        RED,
        GREEN,
        (255, 255, 255),
    ]


def test_a_register_that_is_set_again_leaves_what_was_drawn() -> None:
    image = image_of("#1;2;100;0;0#1~#1;2;0;0;100#1~")
    assert [image.getpixel((x, 0))[:3] for x in (0, 1)] == [RED, BLUE]  # type: ignore[index]


def test_registers_have_a_vt340s_colours_at_first() -> None:
    image = image_of("#2~#15~#20~")
    assert image.getpixel((0, 0)) == (204, 33, 33, 255)
    assert image.getpixel((1, 0)) == (204, 204, 204, 255)
    assert image.getpixel((2, 0)) == (0, 0, 215, 255), "then those of xterm"


def test_a_picture_that_chooses_no_colour_is_drawn_in_that_of_text() -> None:
    assert image_of("~#0~").getpixel((0, 0)) == (229, 229, 229, 255)


@each(
    ("parameters", "raster", "height"),
    [
        *(
            ("", "", 12),
            ("0;1", "", 12),
            ("7;1", "", 6),
            ("2", "", 30),
            ("3", "", 18),
            ("9", "", 6),
        ),
        *(("", '"1;1;1;6', 6), ("7", '"2;1', 12), ("0", '"1;1;1;4', 4), ("7", '"0;0', 6)),
    ],
)
def test_pixels_are_as_high_as_is_said(parameters: str, raster: str, height: int) -> None:
    assert image_of(f"{raster}#1~", parameters).height == height


def test_the_size_that_is_said_adds_to_what_is_drawn_and_cuts_nothing_off() -> None:
    assert image_of('"1;1;30;20#1~').size == (30, 20)
    assert image_of('"1;1;2;2#1!9~-~').size == (9, 12)


def test_the_second_parameter_says_whether_what_is_there_shows_through() -> None:
    found = [read("#1@", parameters) for parameters in ("7;1", "7;0", "7;2", "7")]
    assert [one is not None and one.overlays for one in found] == [True, False, False, False]


@each("text", ["", "-$-", "#1", "!", "!5", '"', "#;;;", "\n\r !", "#1;2;3"])
def test_what_draws_nothing_is_no_picture(text: str) -> None:
    assert read(text) is None


@each(
    "text",
    [
        "!99999999999~",
        "!9999999~" * 50,
        "~-" * 5000,
        '"1;1;999999999;999999999~',
        f"#{'9' * 5000};2;1;1;1~",
        f"!{'0' * 5000}5~",
        '"999999999;1~',
        "!4000~-" * 3000,
        "#1;9;9;9;9~#99999;2;900;900;900~#1;1;99999;99999;99999~",
    ],
)
def test_no_picture_has_more_pixels_than_there_may_be(text: str) -> None:
    for step in (0, 11):
        found = read(text, "", step=step)
        if found is not None:
            assert max(found.image.size) <= sixel_reading.SIDE_MAX
            assert found.image.width * found.image.height <= sixel_reading.PIXELS_MAX


def test_no_memory_is_filled_beyond_what_is_allowed() -> None:
    asked: list[int] = []

    def refuses(pixels: int) -> bool:
        asked.append(pixels)
        return False

    found: list[SixelPicture] = []
    reader = SixelReader("", found.append, allows=refuses)
    reader.feed('"1;1;2000;2000~!100~-~')
    reader.end()
    assert asked and not found


def test_what_has_no_pixel_is_not_larger_than_other_pictures() -> None:
    asked: list[int] = []

    def allows(pixels: int) -> bool:
        asked.append(pixels)
        return True

    found: list[SixelPicture] = []
    reader = SixelReader("", found.append, allows=allows)
    reader.feed("!4096?-" * 683)
    reader.end()
    assert not asked and not found


_WORDS = st.one_of(
    st.sampled_from(["~", "@", "?", "-", "$", "!", "#", '"', ";", "\n", "!20~", "#1;2;9;9;99"]),
    st.text('0123456789;#!"$-?@~ABC\x00\x7f é', max_size=12),
    st.integers(0, 10**12).map(str),
)


@settings(max_examples=examples(300))
@given(
    words=st.lists(_WORDS, max_size=40),
    parameters=st.text("0123456789;", max_size=12),
    cuts=st.lists(st.integers(0, 300), max_size=5),
)
def test_anything_is_read_alike_wherever_it_is_cut(
    words: list[str], parameters: str, cuts: list[int]
) -> None:
    text = "".join(words)
    whole = read(text, parameters)
    found: list[SixelPicture] = []
    reader = SixelReader(parameters, found.append)
    at = 0
    for cut in [*sorted(cuts), len(text)]:
        reader.feed(text[at:cut])
        at = max(at, cut)
    reader.end()
    assert (whole is None) == (not found)
    if whole is not None:
        assert whole.image.size == found[0].image.size
        assert whole.image.tobytes() == found[0].image.tobytes()
