"""The drawing of the tree says who descends from whom, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quicksand_tui.model.lanes import FANCY_LINES, PLAIN_LINES, LaneRow, Lines, lane_rows
from tests.each import each

Parents = dict[str, str | None]


@st.composite
def forests(draw: st.DrawFn) -> Parents:
    """Checkpoints with any parents among the ones before them."""
    count = draw(st.integers(0, 24))
    parents: Parents = {}
    for number in range(count):
        before = list(parents)
        parents[f"n{number:02}"] = draw(st.sampled_from([None, *before])) if before else None
    return parents


def rank(id_: str) -> tuple[float, str]:
    return (0.0, id_)


def head_of(parents: Parents, where: int) -> str | None:
    ids = list(parents)
    return ids[where % len(ids)] if ids else None


def text_of(row: LaneRow) -> str:
    """The row as one sees it, with an o for the checkpoint."""
    before = "".join(stroke.text for stroke in row.before)
    after = "".join(stroke.text for stroke in row.after)
    return before + ("o" if row.id else "") + after


def read(rows: tuple[LaneRow, ...], lines: Lines) -> Parents:
    """Reads the parents off the drawing, from top to bottom, by what is seen only: the ids tell
    which checkpoint has which row."""
    found: Parents = {}
    owners: dict[int, str] = {}
    for row in rows:
        text = text_of(row)
        now: dict[int, str] = {}
        fork = text.find(lines.fork)
        for at in range(0, len(text), 2):
            glyph = text[at]
            if glyph in (lines.along, lines.fork):
                now[at] = owners[at]  # a line hangs from something
            elif glyph == lines.turn:
                now[at] = owners[fork]
            elif glyph == "o":
                comes_from = fork if 0 <= fork < at and text[at - 1] == lines.across else at
                parent = owners.get(comes_from)
                found[row.id] = parent
                now[at] = row.id
        owners = now
    return found


@pytest.mark.parametrize("lines", [FANCY_LINES, PLAIN_LINES], ids=["unicode", "ascii"])
@given(parents=forests(), where=st.integers(0, 30), times=st.lists(st.integers(0, 9), max_size=30))
def test_every_parent_can_be_read_off_the_drawing(
    lines: Lines, parents: Parents, where: int, times: list[int]
) -> None:
    age = dict(zip(parents, times, strict=False))
    head = head_of(parents, where)
    rows = lane_rows(parents, head, lambda id_: (age.get(id_, 5), id_), lines)
    assert sorted(row.id for row in rows if row.id) == sorted(parents)
    assert read(rows, lines) == parents


@given(parents=forests(), where=st.integers(0, 30))
def test_upside_down_the_rows_are_the_same_in_the_other_order(parents: Parents, where: int) -> None:
    head = head_of(parents, where)
    rows = lane_rows(parents, head, rank)
    turned = lane_rows(parents, head, rank, turned=True)
    again = [text_of(row).replace("╯", "╮") for row in reversed(turned)]
    assert [row.id for row in reversed(turned)] == [row.id for row in rows]
    assert again == [text_of(row) for row in rows]


@given(parents=forests(), where=st.integers(0, 30))
def test_the_way_to_where_it_stands_is_one_lit_lane(parents: Parents, where: int) -> None:
    head = at = head_of(parents, where)
    rows = lane_rows(parents, head, rank)
    lit = [row for row in rows if row.on_line]
    way = []
    while at is not None:
        way.append(at)
        at = parents[at]
    assert [row.id for row in lit] == way[::-1]
    assert len({row.lane for row in lit}) <= 1
    for row in rows[rows.index(lit[0]) + 1 : rows.index(lit[-1])] if lit else ():
        if not row.on_line:
            assert sum(stroke.on_line for stroke in (*row.before, *row.after)) == 1


@given(
    st.dictionaries(
        st.sampled_from("abcdefgh"), st.none() | st.sampled_from("abcdefghxyz"), max_size=8
    )
)
def test_whatever_the_files_say_each_has_one_row(parents: Parents) -> None:
    rows = lane_rows(parents, "a", rank)
    assert sorted(row.id for row in rows if row.id) == sorted(parents)
    assert all(text_of(row).isprintable() for row in rows)


@each(
    ("parents", "head", "drawn"),
    [
        ({"a": None, "b": "a", "c": "b"}, "c", ["o a", "o b", "o c"]),
        ({"a": None, "b": "a", "c": "a"}, "c", ["o a", "├─o b", "o c"]),
        ({"a": None, "b": "a", "c": "a"}, "b", ["o a", "├─╮", "o │ b", "  o c"]),
        ({"a": None, "b": None}, "b", ["o a", "", "o b"]),
        (
            {"a": None, "b": "a", "c": "a", "d": "b", "e": "c"},
            "e",
            ["o a", "├─o b", "o │ c", "│ o d", "o e"],
        ),
    ],
    ids=["a chain", "siblings", "an older one", "two roots", "lanes side by side"],
)
def test_what_differs_looks_different(parents: Parents, head: str, drawn: list[str]) -> None:
    rows = lane_rows(parents, head, rank)
    assert [f"{text_of(row).rstrip()} {row.id}".strip(" ") for row in rows] == [
        line.strip(" ") for line in drawn
    ]
