"""The tree of checkpoints: as lines, and as a table's rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from quicksand_tui.model.checkpoints import FANCY, PLAIN, CheckpointTree, CheckpointView
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.views.rows import PADDING, plan_tree_columns
from quicksand_tui.views.tree import STEM_MAX, tree_lines, tree_rows
from tests.unit.app.fakes import DAMAGED, KEPT, NOW, PAST, WEB, FakeService, kept, shown, until


def shapes(tree: CheckpointTree) -> list[str]:
    return [line.stem + line.tag for line in tree_lines(tree, NOW, FANCY)]


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
    tree = CheckpointTree(checkpoints=tuple(reversed(made)), head="b00")
    lines = tree_lines(tree, NOW, FANCY)
    assert len(lines) == 120
    assert max(cell_len(line.stem) for line in lines) <= STEM_MAX + 2


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
@pytest.mark.parametrize("length", [1, 8, 9, 10, 20, 128])
async def test_where_it_stands_and_what_is_pinned_is_told_whatever_the_tag(
    length: int, size: tuple[int, int]
) -> None:
    tree = CheckpointTree(checkpoints=(kept("c1", "x" * length, pinned=True),), head="c1")
    world = replace(KEPT, sandboxes=(replace(WEB, tree=tree),))
    async with shown(FakeService(world), size=size) as (app, pilot):
        await pilot.press("4")
        table = app.main.checkpoints.table
        await until(lambda: "●◆ " in table.render_line(1).text)
        text = table.render_line(1).text
        assert f"●◆ {'x' * min(length, 7)}" in text
        assert "  ← here " in text


async def test_automatic_ones_are_told_apart_in_a_narrow_tree() -> None:
    made = [kept(f"c{n}", f"before revert to base 12:00:0{n}", "c0") for n in range(5)]
    tree = CheckpointTree(checkpoints=tuple(made), head="c4")
    world = replace(KEPT, sandboxes=(replace(WEB, tree=tree),))
    async with shown(FakeService(world), size=(120, 36)) as (app, pilot):
        await pilot.press("4")
        table = app.main.checkpoints.table
        await until(lambda: "0:01 " in table.render_line(2).text)
        for n, line in enumerate(table.render_line(y).text for y in (2, 3, 4, 5)):
            assert f"0:0{n + 1} " in line


ODD = ("宽" * 60, "e\u0301" * 70, "👩\u200d👩\u200d👧" * 20, "שלום" * 30, "[bold]x[/]", "W" * 128)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
async def test_whatever_is_written_there_the_lines_are_as_wide_as_the_table(
    size: tuple[int, int],
) -> None:
    made = [
        kept(f"c{n}", sanitise(text), f"c{n - 1}" if n else None, note=sanitise(text))
        for n, text in enumerate(ODD)
    ]
    tree = CheckpointTree(checkpoints=tuple(made), head="c5")
    world = replace(KEPT, sandboxes=(replace(WEB, tree=tree),))
    async with shown(FakeService(world), size=size) as (app, pilot):
        await pilot.press("4")
        await pilot.pause()
        table = app.main.checkpoints.table
        await until(lambda: "WWWWW" in table.render_line(len(ODD)).text)
        lines = [table.render_line(y) for y in range(len(ODD) + 1)]
        for line, text in zip(lines[1:], ODD, strict=True):
            assert cell_len(line.text) == line.cell_length == lines[0].cell_length
            assert sanitise(text)[:5] in line.text and line.text.isprintable()


@given(tag=st.text(max_size=140), note=st.text(max_size=80), width=st.integers(24, 120))
def test_any_tag_and_note_fit(tag: str, note: str, width: int) -> None:
    made = kept("c1", sanitise(tag), note=sanitise(note))
    auto = replace(made, id="c2", parent="c1", auto=True)
    rows = tree_rows(tree_lines(CheckpointTree(checkpoints=(made, auto), head="c2"), NOW, FANCY))
    for row in rows:
        for column in plan_tree_columns(width):
            text = clip(row.cells[column.key].text, column.width)
            assert cell_len(text) <= column.width and text.isprintable()


def test_a_pinned_one_is_marked_and_sizes_are_told() -> None:
    made = kept("c1", "clean", note="n", pinned=True, own=3 << 20, shared=9 << 20)
    (line,) = tree_lines(CheckpointTree(checkpoints=(made,), head="c1"), NOW, FANCY)
    assert (line.note, line.stem, line.here, line.own) == ("n", "└─●◆ ", "← here", "3.0M")


@pytest.mark.parametrize("width", range(24, 200))
def test_the_columns_fit(width: int) -> None:
    columns = plan_tree_columns(width)
    assert sum(column.width + PADDING for column in columns) <= width
    assert columns[0].key == "tag" and columns[0].width >= 14
    (row, *_) = tree_rows(tree_lines(PAST, NOW, FANCY))
    assert {column.key for column in columns} <= set(row.cells)


@pytest.mark.parametrize(
    ("changed", "here"), [(None, "← here"), (0, "← here"), (3 << 20, "← here +3.0M")]
)
def test_where_it_stands_says_how_much_has_changed_since(changed: int | None, here: str) -> None:
    tree = CheckpointTree(checkpoints=(kept("c1", "base"),), head="c1", changed=changed)
    (line,) = tree_lines(tree, NOW, FANCY)
    assert line.here == here
