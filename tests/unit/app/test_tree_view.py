"""The tree of checkpoints: as lines, and as a table's rows."""

from __future__ import annotations

import itertools
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from quicksand_tui.model.lanes import fold, fold_of
from quicksand_tui.model.shown_sandboxes import CheckpointTree, CheckpointView
from quicksand_tui.model.text import clip, sanitise
from quicksand_tui.views.tables import Row
from quicksand_tui.views.tree_lines import STEM_MAX, TreeLook, plan_tree_columns, tree_rows
from quicksand_tui.widgets.long_table import LongTable
from tests.each import each, trying
from tests.unit.app.busy_day import TREE
from tests.unit.app.fakes import (
    AUTO,
    DAMAGED,
    KEPT,
    NOW,
    PAST,
    WEB,
    FakeService,
    kept,
    screen_text,
    shown,
    until,
)

LOOK = TreeLook(now=NOW)
OPEN = replace(LOOK, opened=(fold_of("c3"),))


def text_of(row: Row, *keys: str) -> str:
    """The drawing and the name of a row, and what stands in the columns ``keys``."""
    tag = row.cells["tag"]
    words = ["".join(text for text, _ in tag.lead) + tag.text, *(row.cells[k].text for k in keys)]
    return " ".join(words).rstrip()


def shapes(tree: CheckpointTree, look: TreeLook = LOOK) -> list[str]:
    return [text_of(row) for row in tree_rows(tree, look).rows]


def test_the_line_to_where_it_stands_goes_straight_on() -> None:
    assert shapes(PAST) == [
        "✗   c0ffee00",
        "",
        "○   clean",
        "├─╮",
        "● │ upgraded",
        "  ○ tried-something",
        "  ⋯ 1 auto",
    ]


def test_the_newest_comes_first_if_one_wants_that() -> None:
    turned = shapes(PAST, replace(LOOK, turned=True))
    assert turned[:3] == ["  ⋯ 1 auto", "  ○ tried-something", "● │ upgraded"]
    assert turned[3] == "├─╯"


def test_automatic_ones_are_folded_and_open_again() -> None:
    assert not any("before revert" in line for line in shapes(PAST))
    assert "  ○ before revert to clean 12:00:00" in shapes(PAST, OPEN)
    rows = tree_rows(TREE, LOOK).rows
    assert sum(row.key.startswith("fold:") for row in rows) == 9
    folded = fold(TREE, ())
    assert sum(folded.counts.values()) == sum(view.auto for view in TREE.checkpoints)
    hidden = {view.id for view in TREE.checkpoints} - set(folded.parents)
    assert hidden == {view.id for view in TREE.checkpoints if view.auto}


def test_an_automatic_one_that_others_descend_from_is_not_folded() -> None:
    below = kept("c9", "found-again", AUTO.id)
    tree = CheckpointTree(checkpoints=(*PAST.checkpoints, below), head="c2")
    assert any("before revert" in line for line in shapes(tree))
    stands_there = replace(PAST, head=AUTO.id)
    assert any("before revert" in line for line in shapes(stands_there))


def test_a_row_tells_age_own_size_pause_note_and_where_it_stands() -> None:
    clean = replace(
        kept("c1", "clean", created=NOW - 7200, note="n", size=3 << 20, is_measured=True),
        pinned=True,
    )
    upgraded = kept("c2", "upgraded", "c1", has_picture=True, tier="disk")
    tree = CheckpointTree(checkpoints=(DAMAGED, clean, upgraded), head="c2", changed=5 << 20)
    rows = {row.key: row for row in tree_rows(tree, LOOK).rows}
    told = ("marks", "when", "own", "pause", "note")
    assert text_of(rows["c1"], *told) == "○ clean  ◆  2h 3.0M 23 ms n"
    assert text_of(rows["c2"], *told) == "● upgraded ▣ ◌ HERE +5.0M disk"
    broken = rows[DAMAGED.id].cells
    assert (broken["note"].text, broken["note"].role) == ("no JSON: line 1", "error")
    assert broken["own"].text == "" and broken["pause"].text == ""


@each(("changed", "since"), [(None, ""), (0, ""), (3 << 20, "+3.0M")])
def test_where_it_stands_says_how_much_was_written_since(changed: int | None, since: str) -> None:
    tree = CheckpointTree(checkpoints=(kept("c1", "base"),), head="c1", changed=changed)
    (row,) = tree_rows(tree, LOOK).rows
    assert text_of(row, "when", "own") == f"● base HERE {since}".rstrip()


def test_in_ascii_the_drawing_is_ascii() -> None:
    for row in tree_rows(TREE, replace(LOOK, ascii_only=True)).rows:
        assert "".join(text for text, _ in row.cells["tag"].lead).isascii()


def test_a_tree_of_many_branches_keeps_its_names_in_sight() -> None:
    made: list[CheckpointView] = []
    for n in range(60):
        made.append(kept(f"a{n:02}", f"a{n}", f"a{n - 1:02}" if n else None))
        made.append(kept(f"b{n:02}", f"b{n}", f"a{n:02}"))
    many = [kept(f"d{n}", f"d{n}", "a00", created=NOW + n) for n in range(40)]
    deep = [kept(f"e{n}", f"e{n}", f"d{n}", created=NOW + 100 + n) for n in range(40)]
    tree = CheckpointTree(checkpoints=(*reversed(made), *many, *deep), head="b00")
    found = tree_rows(tree, LOOK)
    rows = [row for row in found.rows if not row.dead]
    assert len(rows) == 200
    for row in rows:
        drawing = "".join(text for text, _ in row.cells["tag"].lead)
        assert cell_len(drawing) == found.needs[0] + 1 <= STEM_MAX + 1
        assert "○" in drawing or "●" in drawing


def line_with(table: LongTable, text: str) -> str:
    lines = (table.render_line(y).text for y in range(table.size.height))
    return next((line for line in lines if text in line), "")


SIZES = ((80, 24), (120, 36), (200, 50))


async def test_where_it_stands_and_what_is_pinned_is_told_whatever_the_name() -> None:
    service = FakeService()
    async with shown(service) as (app, pilot):
        table = app.main.checkpoints.table
        for size, length in itertools.product(SIZES, (1, 8, 9, 10, 20, 128)):
            with trying((size, length)):
                made = kept(f"c{length}", "x" * length, pinned=True)
                tree = CheckpointTree(checkpoints=(made,), head=made.id, changed=3 << 20)
                service.world = replace(KEPT, sandboxes=(replace(WEB, tree=tree),))
                await app.look()
                await pilot.resize_terminal(*size)
                await pilot.press("4")
                await until(lambda key=made.id: table.has_row(key))  # type: ignore[misc]
                await until(lambda: bool(line_with(table, "● x")))
                line = line_with(table, "● x")
                assert f"● {'x' * min(length, 7)}" in line
                assert "◆" in line and "HERE" in line and "+3.0M" in line


async def test_a_fold_opens_and_closes_by_key_and_nothing_is_reverted() -> None:
    service = FakeService(KEPT)
    async with shown(service, size=(120, 36)) as (app, pilot):
        await pilot.press("4", "G")
        for key in ("enter", "right"):
            with trying(key):
                await until(lambda: app.main.checkpoints.on_fold)
                await pilot.press(key)
                await until(lambda: "before revert" in screen_text(app))
                assert app.main.checkpoints.table.selected_key == AUTO.id
                await pilot.press("left")
                await until(lambda: app.main.checkpoints.on_fold)
                assert "before revert to" not in line_with(app.main.checkpoints.table, "before")
        assert not any(call.startswith("revert") for call in service.calls)


async def test_the_cursor_goes_past_lines_that_only_draw() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await pilot.press("4", "g")
        table = app.main.checkpoints.table
        seen = [table.selected_key]
        for _ in range(4):
            await pilot.press("j")
            seen.append(table.selected_key)
        assert seen == [DAMAGED.id, "c1", "c2", "c3", fold_of("c3")]
        await pilot.press("k", "k", "k")
        assert table.selected_key == "c1"


async def test_o_turns_the_tree_and_the_cursor_stays_on_its_checkpoint() -> None:
    async with shown(FakeService(KEPT), size=(120, 36)) as (app, pilot):
        await pilot.press("4")
        table = app.main.checkpoints.table
        assert table.selected_key == "c2"
        before = table.cursor_row
        await pilot.press("O")
        assert table.selected_key == "c2" and table.cursor_row == table.row_count - 1 - before


ODD = ("宽" * 60, "e\u0301" * 70, "👩\u200d👩\u200d👧" * 20, "שלום" * 30, "[bold]x[/]", "W" * 128)


async def test_whatever_is_written_there_the_lines_are_as_wide_as_the_table() -> None:
    made = [
        kept(f"c{n}", sanitise(text), f"c{n - 1}" if n else None, note=sanitise(text))
        for n, text in enumerate(ODD)
    ]
    tree = CheckpointTree(checkpoints=tuple(made), head="c5")
    world = replace(KEPT, sandboxes=(replace(WEB, tree=tree),))
    async with shown(FakeService(world)) as (app, pilot):
        table = app.main.checkpoints.table
        for size in SIZES:
            with trying(size):
                await pilot.resize_terminal(*size)
                await pilot.press("4")
                await pilot.pause()
                await until(lambda: "WWWWW" in line_with(table, "WWWWW"))
                for text in ODD:
                    line = line_with(table, sanitise(text)[:5])
                    assert cell_len(line) == table.scrollable_content_region.width
                    assert line.isprintable()


@given(tag=st.text(max_size=140), note=st.text(max_size=80), width=st.integers(24, 120))
def test_any_name_and_note_fit(tag: str, note: str, width: int) -> None:
    made = kept("c1", sanitise(tag), note=sanitise(note))
    auto = replace(made, id="c2", parent="c1", auto=True)
    found = tree_rows(CheckpointTree(checkpoints=(made, auto), head="c2"), LOOK)
    for row in found.rows:
        for column in plan_tree_columns(width, found.needs):
            cell = row.cells[column.key]
            drawn = sum(cell_len(text) for text, _ in cell.lead)
            text = clip(cell.text, column.width - drawn)
            assert drawn + cell_len(text) <= column.width and text.isprintable()


@each("width", range(22, 200))
def test_the_columns_fit(width: int) -> None:
    found = tree_rows(TREE, LOOK)
    columns = plan_tree_columns(width, found.needs)
    assert sum(column.cells for column in columns) <= width
    assert columns[0].key == "tag" and columns[0].width >= 14
    assert {column.key for column in columns} <= set(found.rows[0].cells)
    keys = [column.key for column in columns]
    # Names are cut last, and where it stands is told before a note.
    if columns[0].width < found.needs[0] + 1 + found.needs[1]:
        assert set(keys) <= {"tag", "when"}
    assert "note" not in keys or "own" in keys
    assert "pause" not in keys or found.needs[2] == columns[-1].width
