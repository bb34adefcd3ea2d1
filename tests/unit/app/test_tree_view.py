"""The tree of checkpoints: as lines, as a table's rows, and small within the details."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand_tui.widgets.small_tree import draw_small_tree
from rich.cells import cell_len

from quicksand_tui.forest import FANCY, PLAIN
from quicksand_tui.past import CheckpointView, PastView
from quicksand_tui.text import sanitise
from quicksand_tui.tree_view import (
    STEM_MAX,
    here_index,
    plan_tree_columns,
    tree_lines,
    tree_rows,
)
from quicksand_tui.view import PADDING
from quicksand_tui.widgets.facts import STYLES
from tests.unit.app.fakes import CLEAN, DAMAGED, NOW, PAST, kept

MARKUP = "[red]x[/]"
WIDE = "木" * 128
TAGS = (MARKUP, WIDE, 'it\'s "quoted"', "🎉" * 30, "[", "\\[bold]")


def shapes(past: PastView) -> list[str]:
    return [line.stem + line.tag for line in tree_lines(past, NOW, FANCY)]


def small(past: PastView, width: int = 40, room: int = 10) -> list[str]:
    lines = tree_lines(past, NOW, FANCY)
    drawn = draw_small_tree(lines, width=width, room=room, styles=STYLES)
    return [line.plain for line in drawn]


def test_the_line_to_where_it_stands_goes_straight_on() -> None:
    assert shapes(PAST) == [
        "├─✗ c0ffee00",
        "└─○ clean",
        "  ├─○ tried-something",
        "  │ ○ before revert to clean 12:00:00",
        "  ● upgraded",
    ]


def test_a_line_tells_age_size_pause_note_and_where_it_stands() -> None:
    by_id = {line.id: line for line in tree_lines(PAST, NOW, FANCY)}
    clean = by_id["c1"]
    assert (clean.age, clean.size, clean.pause) == ("2h", "48M", "23 ms")
    assert (clean.note, clean.here, clean.role) == ("before the upgrade", "", "")
    assert by_id["c2"].here == "← here"
    assert by_id["c4"].role == "muted"
    broken = by_id[DAMAGED.id]
    assert (broken.role, broken.note, broken.size) == ("error", "no JSON: line 1", "")


def test_in_ascii_the_tree_is_drawn_with_ascii() -> None:
    assert "".join(line.stem + line.here for line in tree_lines(PAST, NOW, PLAIN)).isascii()


def test_a_tree_of_many_branches_keeps_its_tags_in_sight() -> None:
    # Each second one is a leaf beside the line that goes on, so every step is a new branch.
    made: list[CheckpointView] = []
    for n in range(60):
        made.append(kept(f"a{n:02}", f"a{n}", f"a{n - 1:02}" if n else None))
        made.append(kept(f"b{n:02}", f"b{n}", f"a{n:02}"))
    past = PastView(checkpoints=tuple(reversed(made)), head="b00")
    lines = tree_lines(past, NOW, FANCY)
    assert len(lines) == 120
    assert max(cell_len(line.stem) for line in lines) <= STEM_MAX + 2
    for width in (10, 20, 38):
        assert max(cell_len(line) for line in small(past, width=width, room=120)) <= width


def test_the_small_tree_is_cut_around_where_it_stands() -> None:
    made = tuple(kept(f"{n:02}", f"tag-{n}", f"{n - 1:02}" if n else None) for n in range(20))
    for head, room in ((0, 3), (10, 3), (19, 3), (10, 5)):
        past = PastView(checkpoints=made, head=f"{head:02}")
        shown = small(past, room=room)
        assert len(shown) == room
        assert sum(f"tag-{head} ← here" in line for line in shown) == 1
    assert here_index(tree_lines(PastView(checkpoints=made), NOW, FANCY)) == 19


def test_the_small_tree_shows_a_note_where_there_is_room() -> None:
    past = PastView(checkpoints=(CLEAN,), head="c1")
    assert small(past, width=60) == ["└─● clean ← here    2h    48M  before the upgrade"]
    assert "before" not in small(past, width=26)[0]


@pytest.mark.parametrize("tag", TAGS, ids=range(len(TAGS)))
def test_foreign_tags_and_notes_are_text_and_fit(tag: str) -> None:
    made = kept("c1", sanitise(tag, limit=128), note=tag)
    past = PastView(checkpoints=(made, kept("c2", "plain", "c1")), head="c1")
    for width in (24, 38, 60, 100):
        for line in small(past, width=width):
            assert cell_len(line) <= width
    assert sanitise(tag)[:4] in small(past, width=38)[0]
    drawn = draw_small_tree(tree_lines(past, NOW, FANCY), width=60, room=5, styles=STYLES)
    assert {str(span.style) for line in drawn for span in line.spans} <= {
        *STYLES.values(),
        "bold",
        "$text-accent",
    }


@given(tag=st.text(max_size=140), note=st.text(max_size=80), width=st.integers(24, 120))
def test_any_tag_and_note_fit(tag: str, note: str, width: int) -> None:
    made = kept("c1", sanitise(tag), note=sanitise(note))
    auto = replace(made, id="c2", parent="c1", auto=True)
    for line in small(PastView(checkpoints=(made, auto), head="c2"), width=width):
        assert cell_len(line) <= width


@pytest.mark.parametrize("width", range(24, 200))
def test_the_columns_fit(width: int) -> None:
    columns = plan_tree_columns(width)
    assert sum(column.width + PADDING for column in columns) <= width
    assert columns[0].key == "tag" and columns[0].width >= 14
    (row, *_) = tree_rows(tree_lines(PAST, NOW, FANCY))
    assert {column.key for column in columns} <= set(row.cells)
