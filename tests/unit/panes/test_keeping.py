"""Arrangements of panes, kept and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from quicksand_panes import splits
from quicksand_panes.splits import PANES_MAX, Arrangement, Leaf, Node, Rect, Side, Way, renamed

from quicksand_tui.home.state import SANDBOXES_MAX, PaneMemory, StateFile
from tests.each import each

ROOM = Rect(0, 0, 120, 40)


def arranged() -> Node:
    node: Node = Leaf("a")
    node = splits.split(node, "a", "b", Way.BESIDE)
    node = splits.split(node, "b", "c", Way.BELOW)
    return splits.resize(splits.swap(node, "a", "c"), "c", Side.LEFT)


def test_it_is_the_same_when_it_is_read_again() -> None:
    kept = Arrangement(arranged(), "b", zoomed=True)
    read = Arrangement.from_json(json.loads(json.dumps(kept.to_json())))
    assert read is not None
    assert splits.arrange(read.node, ROOM) == splits.arrange(kept.node, ROOM)
    assert (read.current, read.zoomed) == ("b", True)


def test_panes_that_are_gone_leave_their_room_to_the_others() -> None:
    kept = Arrangement(arranged(), "b")
    left = kept.only({"c"})
    assert left is not None and left.node == Leaf("c")
    assert kept.only(()) is None


def test_other_names_change_nothing_else() -> None:
    node = renamed(arranged(), str.upper)
    assert list(splits.panes(node)) == [name.upper() for name in splits.panes(arranged())]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["beside", "below"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.fixed_dictionaries({"way": inner, "parts": inner, "shares": inner})
        | st.fixed_dictionaries(
            {
                "way": st.just("below"),
                "parts": st.lists(inner, min_size=2),
                "shares": st.just([1, 1]),
            }
        )
    ),
    max_leaves=20,
)


@given(JSON)
def test_whatever_was_kept_is_an_arrangement_or_none(value: Any) -> None:
    kept = Arrangement.from_json({"panes": value, "current": value, "zoomed": value})
    if kept is not None:
        names = list(splits.panes(kept.node))
        assert len(set(names)) == len(names) <= PANES_MAX
        assert sum(r.width * r.height for r in splits.arrange(kept.node, ROOM).values()) <= 4800


def deep(levels: int) -> object:
    node: object = "x"
    for level in range(levels):
        node = {"way": "below", "parts": [f"p{level}", node], "shares": [0.5, 0.5]}
    return node


@each(
    "panes",
    [
        deep(100),
        {"way": "below", "parts": ["a", "a"], "shares": [0.5, 0.5]},
        {"way": "across", "parts": ["a", "b"], "shares": [0.5, 0.5]},
        {"way": ["below"], "parts": ["a", "b"], "shares": [0.5, 0.5]},
        {"way": "below", "parts": ["a"], "shares": [1.0]},
        {"way": "below", "parts": ["a", "b"], "shares": [0.5]},
        {"way": "below", "parts": ["a", "b"], "shares": [0.5, float("nan")]},
        {"way": "below", "parts": ["a", "b"], "shares": [0.5, -1]},
        {"way": "below", "parts": ["a", "b"], "shares": [True, 0.5]},
        {"way": "below", "parts": list("ab") * 99, "shares": [0.5] * 198},
        "x" * 1000,
        "",
        7,
    ],
    ids=range(13),
)
def test_damage_is_no_arrangement(panes: object) -> None:
    assert Arrangement.from_json({"panes": panes}) is None


def test_memory_is_by_sandbox_and_forgets_those_that_are_gone(tmp_path: Path) -> None:
    path = tmp_path / "panes.json"
    memory, other = PaneMemory(StateFile(path)), PaneMemory(StateFile(path))
    assert memory.put("one", 1)
    assert not memory.put("one", 1)
    memory.write("one", {"one", "two"})
    other.put("two", 2)
    other.write("two", {"one", "two"})
    assert (memory.read("one"), memory.read("two")) == (1, 2)
    memory.put("three", 3)
    memory.write("three", {"two", "three"})
    assert [other.read(name) for name in ("one", "two", "three")] == [None, 2, 3]
    memory.put("three", None)
    memory.write("three", {"two", "three"})
    assert other.read("three") is None


def test_memory_is_bounded_and_keeps_the_last(tmp_path: Path) -> None:
    memory = PaneMemory(StateFile(tmp_path / "panes.json"))
    names = [f"sandbox-{n}" for n in range(SANDBOXES_MAX + 5)]
    for name in names:
        memory.put(name, 1)
        memory.write(name, names)
    assert [name for name in names if memory.read(name)] == names[-SANDBOXES_MAX:]


def test_a_damaged_file_is_no_memory(tmp_path: Path) -> None:
    (tmp_path / "panes.json").write_text("{")
    memory = PaneMemory(StateFile(tmp_path / "panes.json"))
    assert memory.read("one") is None
    memory.put("one", 1)
    memory.write("one", {"one"})
    assert memory.read("one") == 1
