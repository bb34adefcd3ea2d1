"""Splits of a rectangle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from quicksand_panes import splits
from quicksand_panes.splits import Leaf, Node, Rect, Side, Split, Way

from tests.each import each

ROOM = Rect(0, 0, 81, 25)


def beside() -> Node:
    return splits.split(Leaf("a"), "a", "b", Way.BESIDE)


def test_two_beside_each_other_have_a_line_between_them() -> None:
    assert splits.arrange(beside(), ROOM) == {"a": Rect(0, 0, 40, 25), "b": Rect(41, 0, 40, 25)}


def test_two_above_each_other() -> None:
    node = splits.split(Leaf("a"), "a", "b", Way.BELOW)
    assert splits.arrange(node, ROOM) == {"a": Rect(0, 0, 81, 12), "b": Rect(0, 13, 81, 12)}


def test_a_third_in_the_same_way_halves_one_of_the_two() -> None:
    node = splits.split(beside(), "b", "c", Way.BESIDE)
    assert isinstance(node, Split)
    assert node.shares == (0.5, 0.25, 0.25)
    assert [r.width for r in splits.arrange(node, ROOM).values()] == [40, 19, 20]


def test_a_third_the_other_way_is_within_one_of_the_two() -> None:
    node = splits.split(beside(), "b", "c", Way.BELOW)
    places = splits.arrange(node, ROOM)
    assert places["a"] == Rect(0, 0, 40, 25)
    assert places["b"] == Rect(41, 0, 40, 12)
    assert places["c"] == Rect(41, 13, 40, 12)


def test_what_is_left_takes_the_place() -> None:
    node = splits.split(beside(), "b", "c", Way.BELOW)
    left = splits.remove(node, "a")
    assert left is not None
    assert splits.arrange(left, ROOM) == {"b": Rect(0, 0, 81, 12), "c": Rect(0, 13, 81, 12)}
    assert splits.remove(Leaf("a"), "a") is None
    assert splits.remove(node, "nobody") == node


def test_splits_of_one_way_do_not_nest() -> None:
    node = splits.split(splits.split(beside(), "b", "c", Way.BELOW), "c", "d", Way.BESIDE)
    left = splits.remove(node, "b")
    assert isinstance(left, Split)
    assert left.children == (Leaf("a"), Leaf("c"), Leaf("d"))


@each(
    ("pane", "side", "found"),
    [
        ("a", Side.RIGHT, "b"),
        ("b", Side.DOWN, "c"),
        ("c", Side.LEFT, "a"),
        ("b", Side.UP, "c"),
        ("a", Side.LEFT, "b"),
        ("a", Side.UP, None),
    ],
)
def test_going_to_the_side(pane: str, side: Side, found: str | None) -> None:
    places = splits.arrange(splits.split(beside(), "b", "c", Way.BELOW), ROOM)
    assert splits.neighbour(places, pane, side) == found


def test_resizing_moves_the_nearest_line() -> None:
    node = splits.split(beside(), "b", "c", Way.BELOW)
    wider = splits.resize(node, "a", Side.RIGHT)
    assert splits.arrange(wider, ROOM)["a"].width == 44
    assert splits.resize(wider, "c", Side.LEFT) == node
    lower = splits.resize(node, "c", Side.DOWN)
    assert splits.arrange(lower, ROOM)["b"].height == 13
    assert splits.resize(Leaf("a"), "a", Side.LEFT) == Leaf("a")


def test_no_line_moves_over_its_neighbour() -> None:
    node = beside()
    for _ in range(50):
        node = splits.resize(node, "a", Side.LEFT)
    assert splits.arrange(node, ROOM)["a"].width == 4
    even = splits.even(node)
    assert splits.arrange(even, ROOM) == splits.arrange(beside(), ROOM)


def test_two_change_places() -> None:
    assert list(splits.panes(splits.swap(beside(), "a", "b"))) == ["b", "a"]


def test_small_places_are_not_split() -> None:
    assert splits.can_split(Rect(0, 0, 21, 3), Way.BESIDE)
    assert not splits.can_split(Rect(0, 0, 20, 30), Way.BESIDE)
    assert not splits.can_split(Rect(0, 0, 80, 6), Way.BELOW)


STEPS = st.lists(
    st.tuples(st.sampled_from(["beside", "below", "remove", "swap", *Side]), st.integers(0, 9)),
    max_size=30,
)


@given(STEPS, st.integers(0, 120), st.integers(0, 60))
def test_whatever_is_done_panes_do_not_overlap(
    steps: list[tuple[object, int]], width: int, height: int
) -> None:
    node: Node = Leaf("0")
    for number, (step, which) in enumerate(steps, start=1):
        names = list(splits.panes(node))
        pane = names[which % len(names)]
        match step:
            case "beside" | "below":
                node = splits.split(node, pane, str(number), Way(step))
            case "remove":
                node = splits.remove(node, pane) or node
            case "swap":
                node = splits.swap(node, pane, names[0])
            case Side():
                node = splits.resize(node, pane, step)
    names = list(splits.panes(node))
    assert len(names) == len(set(names)) >= 1
    places = splits.arrange(node, Rect(0, 0, width, height))
    seen: set[tuple[int, int]] = set()
    for place in places.values():
        assert place.x >= 0
        assert place.y >= 0
        assert place.x + place.width <= width
        assert place.y + place.height <= height
        cells = {
            (x, y)
            for x in range(place.x, place.x + place.width)
            for y in range(place.y, place.y + place.height)
        }
        assert not cells & seen
        seen |= cells


def test_a_line_is_found_by_its_cells_and_dragged() -> None:
    node = splits.split(beside(), "b", "c", Way.BELOW)
    between = splits.line_at(node, ROOM, 40, 3)
    below = splits.line_at(node, ROOM, 60, 12)
    assert between is not None and below is not None
    assert splits.line_at(node, ROOM, 39, 3) is None
    assert splits.line_at(node, ROOM, 20, 12) is None
    assert splits.line_at(node, ROOM, 40, 99) is None
    assert splits.line_at(Leaf("a"), ROOM, 0, 0) is None
    places = splits.arrange(splits.drag(node, ROOM, between, 20, 3), ROOM)
    assert [place.x for place in places.values()] == [0, 21, 21]
    places = splits.arrange(splits.drag(node, ROOM, below, 60, 20), ROOM)
    assert places["b"] == Rect(41, 0, 40, 20)
    assert places["c"] == Rect(41, 21, 40, 4)


@given(
    ways=st.lists(st.tuples(st.integers(0, 5), st.sampled_from(Way)), max_size=5),
    room=st.tuples(st.integers(1, 90), st.integers(1, 40)),
    cell=st.tuples(st.integers(-5, 95), st.integers(-5, 45)),
    to=st.tuples(st.integers(-5, 95), st.integers(-5, 45)),
)
def test_a_dragged_line_is_where_the_mouse_is_as_far_as_there_is_room(
    ways: list[tuple[int, Way]], room: tuple[int, int], cell: tuple[int, int], to: tuple[int, int]
) -> None:
    node: Node = Leaf("0")
    for number, (which, way) in enumerate(ways, 1):
        names = list(splits.panes(node))
        node = splits.split(node, names[which % len(names)], str(number), way)
    whole = Rect(0, 0, *room)
    line = splits.line_at(node, whole, *cell)
    if line is None:
        return
    places = splits.arrange(node, whole)
    assert not any(
        place.x <= cell[0] < place.x + place.width and place.y <= cell[1] < place.y + place.height
        for place in places.values()
    )
    dragged = splits.drag(node, whole, line, *to)
    assert list(splits.panes(dragged)) == list(splits.panes(node))
    for before, after in zip(places.values(), splits.arrange(dragged, whole).values(), strict=True):
        assert after.width >= min(before.width, splits.LENGTH_MIN)
        assert after.height >= min(before.height, splits.LENGTH_MIN)
