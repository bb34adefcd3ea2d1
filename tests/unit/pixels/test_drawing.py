"""What is encoded is decoded again and compared, whole and change by change."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import pytest
from PIL import Image, ImageChops, ImageDraw, ImageStat
from quicksand_pixels import Rect
from quicksand_pixels.encoding.canvas import Canvas, Encoder, Frame
from quicksand_pixels.encoding.half_cells import HalfCells
from quicksand_pixels.encoding.kitty import KittyEncoder
from quicksand_pixels.encoding.sixel import SixelEncoder
from quicksand_pixels.viewport import Grid, Viewport
from quicksand_pixels.ways import Colours
from quicksand_vt import Terminal

from tests.each import each
from tests.unit.pixels.decoders import KittyTerminal, SixelTerminal, half_cells
from tests.unit.pixels.screens import desktop, frame_of, whole

COLUMNS, ROWS = 50, 20
CELL = (8, 16)


class Shows(Protocol):
    def feed(self, data: bytes) -> None: ...
    def shown(self) -> Image.Image: ...


class Kitty(KittyTerminal):
    def shown(self) -> Image.Image:
        return self.screen()


class Sixel(SixelTerminal):
    def shown(self) -> Image.Image:
        return self.screen


class Half(Terminal):
    def shown(self) -> Image.Image:
        return half_cells(self, COLUMNS, ROWS)


WAYS: dict[str, Callable[[], tuple[Encoder, Shows, int]]] = {
    "kitty": lambda: (KittyEncoder(CELL, first_id=7000), Kitty(COLUMNS, ROWS, CELL), 0),
    "sixel": lambda: (SixelEncoder(CELL), Sixel(COLUMNS, ROWS, CELL), 24),
    "half": lambda: (HalfCells(), Half(COLUMNS, ROWS), 8),
    "half-256": lambda: (HalfCells(Colours.INDEXED), Half(COLUMNS, ROWS), 80),
}
"""Encoder, terminal, and the most that a part of a colour may differ on average."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> tuple[Encoder, Shows, int]:
    return WAYS[request.param]()


def view_of(picture: Image.Image) -> Viewport:
    return Viewport(width=picture.width, height=picture.height, grid=Grid(COLUMNS, ROWS, *CELL))


def expected(picture: Image.Image, view: Viewport, cell: tuple[int, int]) -> Image.Image:
    target = view.target
    screen = Image.new("RGB", (COLUMNS * cell[0], ROWS * cell[1]))
    scaled = picture.resize(
        (target.width * cell[0], target.height * cell[1]),
        Image.Resampling.BOX,
        box=(*view.source,),
    )
    screen.paste(scaled, (target.x * cell[0], target.y * cell[1]))
    return screen


def differ(one: Image.Image, other: Image.Image) -> float:
    """How much a part of a colour differs on average."""
    return max(ImageStat.Stat(ImageChops.difference(one, other)).mean)


def test_a_frame_is_shown_as_it_is(way: tuple[Encoder, Shows, int]) -> None:
    encoder, terminal, tolerance = way
    picture = desktop()
    view = view_of(picture)
    terminal.feed(Canvas(encoder).draw(frame_of(picture), view, [whole(picture)]))
    wanted = expected(picture, view, encoder.cell)
    assert differ(terminal.shown(), wanted) <= tolerance / 4


def test_what_has_not_changed_costs_no_byte(way: tuple[Encoder, Shows, int]) -> None:
    encoder, _, _ = way
    picture = desktop()
    canvas, view = Canvas(encoder), view_of(picture)
    assert canvas.draw(frame_of(picture), view, [whole(picture)])
    assert canvas.draw(frame_of(picture), view, [whole(picture)]) == b""
    assert canvas.draw(frame_of(picture), view, [Rect(33, 47, 101, 59)]) == b""
    assert canvas.draw(frame_of(picture), view, []) == b""


def test_changes_arrive_wherever_they_are(way: tuple[Encoder, Shows, int]) -> None:
    encoder, terminal, tolerance = way
    chance = random.Random(5)
    picture = desktop()
    canvas, view = Canvas(encoder), view_of(picture)
    first = canvas.draw(frame_of(picture), view, [whole(picture)])
    terminal.feed(first)
    for _ in range(25):
        width, height = chance.randrange(1, 60), chance.randrange(1, 40)
        damage = Rect(
            chance.randrange(picture.width - width),
            chance.randrange(picture.height - height),
            width,
            height,
        )
        box = (damage.x, damage.y, damage.x + width, damage.y + height)
        picture.paste(tuple(chance.randrange(256) for _ in range(3)), box)
        terminal.feed(canvas.draw(frame_of(picture), view, [damage]))
    wanted = expected(picture, view, encoder.cell)
    assert differ(terminal.shown(), wanted) <= tolerance / 4


def test_a_small_change_costs_little(way: tuple[Encoder, Shows, int]) -> None:
    encoder, _, _ = way
    picture = desktop()
    canvas, view = Canvas(encoder), view_of(picture)
    first = canvas.draw(frame_of(picture), view, [whole(picture)])
    ImageDraw.Draw(picture).rectangle((300, 200, 308, 216), fill="red")
    second = canvas.draw(frame_of(picture), view, [Rect(300, 200, 9, 17)])
    assert 0 < len(second) < len(first) / 3


def test_another_view_is_drawn_whole_and_leaves_nothing_of_the_last(
    way: tuple[Encoder, Shows, int],
) -> None:
    encoder, terminal, tolerance = way
    picture = desktop()
    canvas = Canvas(encoder)
    view = view_of(picture)
    terminal.feed(canvas.draw(frame_of(picture), view, [whole(picture)]))
    closer = view.zoomed(2).moved(0.3, 0.2)
    terminal.feed(canvas.draw(frame_of(picture), closer, []))
    wanted = expected(picture, closer, encoder.cell)
    assert differ(terminal.shown(), wanted) <= max(4.0, tolerance / 4)


def test_the_rest_of_a_screen_whose_size_changes_is_drawn_in_the_new_one(
    way: tuple[Encoder, Shows, int],
) -> None:
    encoder, terminal, tolerance = way
    canvas = Canvas(encoder)
    for size in ((640, 400), (400, 320), (1, 1), (640, 400)):
        picture = desktop().resize(size)
        terminal.feed(canvas.draw(frame_of(picture), view_of(picture), [whole(picture)]))
    wanted = expected(picture, view_of(picture), encoder.cell)
    assert differ(terminal.shown(), wanted) <= max(1.0, tolerance / 4)


def test_a_frame_that_is_shorter_than_its_size_is_refused() -> None:
    with pytest.raises(ValueError, match="no 640x400"):
        Frame(640, 400, b"\x00" * 100).image()


def test_kitty_leaves_no_image_behind() -> None:
    encoder, terminal, _ = WAYS["kitty"]()
    assert isinstance(terminal, Kitty)
    picture = desktop()
    canvas, view = Canvas(encoder), view_of(picture)
    terminal.feed(canvas.draw(frame_of(picture), view, [whole(picture)]))
    count = len(terminal.images)
    inverted = ImageChops.invert(picture)
    terminal.feed(canvas.draw(frame_of(inverted), view, [whole(picture)]))
    assert len(terminal.images) == count > 1
    terminal.feed(canvas.forget())
    assert not terminal.images


def test_tiles_at_the_same_time_have_different_ids_in_the_largest_terminal() -> None:
    encoder = KittyEncoder((1, 1), first_id=0)
    picture = Image.new("RGB", (1000, 500))
    encoder.draw(picture, (0, 0), Rect(0, 0, 1000, 500))
    numbers = [number for number, _ in encoder._shown.values()]
    assert len(set(numbers)) == len(numbers) == 63 * 63


@each(
    ("colours", "ascii_only", "wanted"),
    [
        (Colours.NONE, False, "█▄▀ "),
        (Colours.NONE, True, "@== "),
        (Colours.TRUE, True, "    "),
    ],
)
def test_terminals_without_colours_or_half_cells(
    colours: Colours, ascii_only: bool, wanted: str
) -> None:
    picture = Image.new("RGB", (4, 2))
    for place in ((0, 0), (0, 1), (1, 1), (2, 0)):
        picture.putpixel(place, (255, 255, 255))
    terminal = Terminal(4, 2)
    encoder = HalfCells(colours, ascii_only=ascii_only)
    drawn = encoder.draw(picture, (0, 0), Rect(0, 0, 4, 1))
    terminal.feed(drawn)
    assert "".join(terminal.cells(terminal.screen_line)) == wanted
    assert drawn.isascii() == ascii_only
    assert (b"38" in drawn or b"48" in drawn) == (colours is not Colours.NONE)


def test_sixteen_colours_are_the_nearest() -> None:
    picture = Image.new("RGB", (3, 2))
    for column, colour in enumerate([(250, 10, 10), (5, 5, 5), (120, 130, 125)]):
        picture.paste(colour, (column, 0, column + 1, 2))
    drawn = HalfCells(Colours.SIXTEEN).draw(picture, (0, 0), Rect(0, 0, 3, 1))
    assert drawn == b"\x1b[1;1H\x1b[101m \x1b[40m \x1b[100m \x1b[m"
