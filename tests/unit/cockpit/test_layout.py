"""Where the parts of the main screen are."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.model.geometry import Rect
from quicksand_tui.views.main_layout import (
    AREA_MIN,
    STACKED_FROM,
    Needs,
    Part,
    Shape,
    Tab,
    arrange,
    columns,
    widened,
)
from tests.each import each

SHAPES = st.builds(
    Shape,
    lists=st.integers(0, 300),
    tab=st.sampled_from(Tab),
    zoomed=st.booleans(),
)

NEEDS = st.builds(Needs, listed=st.integers(0, 500), drawn=st.integers(0, 500), aside=st.booleans())
FOCUSED = st.sampled_from([Part.LISTS, Part.TREE, Part.AREA])


def overlaps(a: Rect, b: Rect) -> bool:
    beside = a.x >= b.x + b.width or b.x >= a.x + a.width
    below = a.y >= b.y + b.height or b.y >= a.y + a.height
    return not beside and not below


@given(
    width=st.integers(1, 400),
    height=st.integers(1, 120),
    shape=SHAPES,
    focus=FOCUSED,
    needs=NEEDS,
)
def test_parts_fit_and_share_a_line_with_the_one_above_at_most(
    width: int, height: int, shape: Shape, focus: Part, needs: Needs
) -> None:
    arrangement = arrange(width, height, shape, focus, needs)
    places = arrangement.places
    for place in places.values():
        assert place.x >= 0 and place.y >= 0 and place.width >= 0 and place.height >= 0
        assert place.x + place.width <= width
        assert place.y + place.height <= max(height, 2)
    for (one, a), (other, b) in itertools.combinations(places.items(), 2):
        if {one, other} == {Part.TREE, Part.AREA} and arrangement.tree_is_tab:
            continue
        if one in (arrangement.above(other), other) or other is arrangement.above(one):
            upper, lower = sorted((a, b), key=lambda place: place.y)
            assert upper.y + upper.height - 1 == lower.y
        else:
            assert not overlaps(a, b)


@given(width=st.integers(1, 400), height=st.integers(2, 120), shape=SHAPES, needs=NEEDS)
def test_what_has_the_focus_is_seen(width: int, height: int, shape: Shape, needs: Needs) -> None:
    for focus in (Part.LISTS, Part.TREE, Part.AREA):
        # Where the tree is a tab, it has the focus only while that is the chosen one.
        tab = Tab.TREE if focus is Part.TREE else shape.tab
        found = arrange(width, height, replace(shape, tab=tab), focus, needs)
        assert focus in found.places


@each(("width", "count"), [(80, 1), (99, 1), (100, 2), (179, 2), (180, 3)])
def test_columns(width: int, count: int) -> None:
    assert columns(width) == count
    assert not arrange(width, STACKED_FROM, Shape(), Part.LISTS).tree_is_tab
    low = arrange(width, STACKED_FROM - 1, Shape(), Part.LISTS)
    assert low.tree_is_tab is (count == 1)


@each("size", [(120, 33), (200, 47)])
def test_a_box_is_as_tall_as_its_content_and_the_rest_is_for_the_other(
    size: tuple[int, int],
) -> None:
    few, many = Needs(listed=4, drawn=40), Needs(listed=60, drawn=5)
    places = arrange(*size, Shape(), Part.LISTS, few).places
    assert places[Part.LISTS].height == 7
    assert places[Part.TREE].height == size[1] - 6
    places = arrange(*size, Shape(), Part.LISTS, many).places
    assert places[Part.TREE].height == 8
    both = arrange(*size, Shape(), Part.LISTS, Needs(listed=60, drawn=60)).places
    assert abs(both[Part.LISTS].height - both[Part.TREE].height) <= size[1] // 5


def test_in_a_small_terminal_no_line_is_blank_or_drawn_twice_while_the_area_lacks_room() -> None:
    """One sandbox with one checkpoint: a row each, and a line between."""
    arrangement = arrange(80, 21, Shape(), Part.LISTS, Needs(listed=1, drawn=2))
    places = arrangement.places
    assert places[Part.LISTS] == Rect(0, 0, 80, 3)
    assert places[Part.TREE] == Rect(0, 2, 80, 4)
    assert places[Part.AREA] == Rect(0, 5, 80, 16)
    assert arrangement.above(Part.TREE) is Part.LISTS
    assert arrangement.above(Part.AREA) is Part.TREE
    # A list that is long enough for a head gets the row for it.
    longer = arrange(80, 21, Shape(), Part.LISTS, Needs(listed=4, drawn=2)).places
    assert longer[Part.LISTS].height == 7


def test_a_wide_terminal_has_a_third_column_if_there_are_several_sandboxes() -> None:
    one = arrange(200, 47, Shape(), Part.LISTS, Needs(listed=1)).places
    several = arrange(200, 47, Shape(), Part.LISTS, Needs(listed=2, aside=True)).places
    assert Part.ASIDE not in one and Part.ASIDE in several
    assert one[Part.AREA].width == several[Part.AREA].width + several[Part.ASIDE].width


def test_in_one_column_the_part_with_the_focus_has_the_room() -> None:
    needs = Needs(listed=20, drawn=40)
    heights = {
        focus: arrange(80, 21, Shape(), focus, needs).places[focus].height
        for focus in (Part.LISTS, Part.TREE, Part.AREA)
    }
    for focus, height in heights.items():
        for other in heights.keys() - {focus}:
            places = arrange(80, 21, Shape(), other, needs).places
            assert places[focus].height < height


def test_a_shell_gets_80_columns_beside_the_lists() -> None:
    shape = Shape(tab=Tab.SHELLS)
    assert arrange(120, 33, shape, Part.AREA).places[Part.AREA].width >= 80


def test_a_shell_in_a_small_terminal_has_all_of_it() -> None:
    shape = Shape(tab=Tab.SHELLS)
    assert arrange(80, 24, shape, Part.AREA).places == {Part.AREA: Rect(0, 0, 80, 24)}
    assert Part.LISTS in arrange(120, 36, shape, Part.AREA).places
    zoomed = replace(shape, zoomed=True)
    assert arrange(120, 36, zoomed, Part.AREA).places == {Part.AREA: Rect(0, 0, 120, 36)}


@each("width", [110, 200])
def test_columns_are_made_wider_and_narrower_within_limits(width: int) -> None:
    shape = Shape()
    for part in (Part.LISTS, Part.TREE, Part.AREA):
        wider = widened(shape, part, 4, width)
        before = arrange(width, 40, shape, part).places[part].width
        after = arrange(width, 40, wider, part).places[part].width
        assert after == before + 4
    for _ in range(100):
        shape = widened(shape, Part.LISTS, 4, width)
    assert arrange(width, 40, shape, Part.LISTS).places[Part.AREA].width >= AREA_MIN


def test_one_above_the_other_there_is_no_width_to_change() -> None:
    assert widened(Shape(), Part.LISTS, 4, 80) == Shape()
