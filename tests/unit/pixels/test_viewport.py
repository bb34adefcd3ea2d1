"""Views of frames: whole, zoomed, moved, and back from the mouse to the pixel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_pixels import Rect
from quicksand_pixels.viewport import Grid, Viewport

from tests.each import each


def view(width: int = 1280, height: int = 800, grid: Grid | None = None) -> Viewport:
    grid = grid or Grid(160, 45)
    return Viewport(width=width, height=height, grid=grid)


def test_the_whole_is_in_proportion_and_in_the_middle() -> None:
    assert view().target == Rect(8, 0, 144, 45)
    assert tuple(view().source) == (0, 0, 1280, 800)
    assert view(grid=Grid(80, 50)).target == Rect(0, 12, 80, 25)


def test_a_small_screen_is_enlarged_a_little_only() -> None:
    assert view(100, 100).target == Rect(70, 17, 20, 10)


def test_a_sharp_view_is_enlarged_by_whole_numbers() -> None:
    large = Grid(160, 45)
    assert view(1280, 800, large).scale == pytest.approx(1.125)
    sharp = Viewport(width=1280, height=800, grid=large, sharp=True)
    assert (sharp.scale, sharp.target) == (1, Rect(16, 2, 128, 40))
    assert Viewport(width=1280, height=800, grid=Grid(100, 45), sharp=True).scale < 1


def test_zoom_shows_a_part_and_never_less_than_the_whole() -> None:
    closer = view().zoomed(2)
    assert closer.target == Rect(0, 0, 160, 45)
    source = closer.source
    assert source.right - source.left == pytest.approx(1280 / 1.8)
    assert closer.zoomed(0.1).source == view().source


def test_moves_end_at_the_edges_and_at_once_come_back() -> None:
    moved = view().zoomed(2)
    for _ in range(9):
        moved = moved.moved(1, 1)
    assert moved.source.right == 1280 and moved.source.bottom == 800
    assert moved.moved(-0.1, 0).source.right < 1280


@each("grid", [Grid(160, 45), Grid(80, 50), Grid(33, 7, 9, 18)])
def test_a_click_is_within_a_pixel_of_a_cell_where_it_was_made(grid: Grid) -> None:
    found = view(grid=grid)
    target = found.target
    for column in range(target.width):
        for row in range(target.height):
            place = found.frame_at(target.x + column + 0.5, target.y + row + 0.5)
            assert place is not None
            assert abs(place[0] - (column + 0.5) * 1280 / target.width) <= 1
            assert abs(place[1] - (row + 0.5) * 800 / target.height) <= 1
    assert found.frame_at(target.x - 0.5, target.y) is None
    assert found.frame_at(target.x, target.y + target.height) is None


@given(
    st.integers(1, 16384),
    st.integers(1, 16384),
    st.builds(Grid, *[st.integers(1, 400), st.integers(1, 200)], *[st.integers(1, 60)] * 2),
    st.floats(1, 16),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_every_view_is_of_the_frame_and_in_the_area(
    width: int, height: int, grid: Grid, zoom: float, centre: tuple[float, float]
) -> None:
    found = Viewport(width=width, height=height, grid=grid, zoom=zoom, centre=centre)
    source, target = found.source, found.target
    assert -1e-6 <= source.left < source.right <= width + 1e-6
    assert -1e-6 <= source.top < source.bottom <= height + 1e-6
    assert target.width >= 1 and target.x >= 0 and target.x + target.width <= grid.columns
    assert target.height >= 1 and target.y >= 0 and target.y + target.height <= grid.rows
    place = found.frame_at(target.x + target.width / 2, target.y + target.height / 2)
    assert place is not None and 0 <= place[0] < width and 0 <= place[1] < height


def test_changes_beyond_the_view_are_no_cells_of_it() -> None:
    closer = view().zoomed(4)
    assert not closer.cells_of(Rect(0, 0, 20, 20)).width
    seen = closer.cells_of(Rect(0, 0, 1280, 800))
    assert seen == Rect(0, 0, closer.target.width, closer.target.height)
