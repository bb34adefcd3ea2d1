"""Saves as rows, lines and words; filter and order; what several free together."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.save import SaveFacts, Verification, freed_together

from quicksand_tui.model.jobs import Job, JobVerb
from quicksand_tui.model.shown_saves import NO_SAVES, SavesView
from quicksand_tui.model.world import World
from quicksand_tui.views import losses
from quicksand_tui.views.job_rows import jobs_text
from quicksand_tui.views.sandbox_rows import PADDING
from quicksand_tui.views.save_rows import (
    ORDERS,
    arrange,
    arrange_trash,
    came_from_text,
    counts_text,
    describe_save,
    describe_trashed,
    empty_saves_text,
    empty_trash_text,
    left_text,
    marked_text,
    names_text,
    plan_saves_columns,
    plan_trash_columns,
    save_row,
    trash_row,
    trouble_of,
)
from quicksand_tui.views.tables import Column
from tests.each import each
from tests.unit.app.fake_saves import (
    DAMAGED,
    DEV,
    DEV2,
    GONE,
    LAYER,
    LOST,
    LOW,
    MIB,
    NOTHING,
    NOW,
    SAVES,
    SPOILT,
    saved,
    trashed,
)

WORLD = World(taken=NOW, saves=SAVES)
BAD = replace(DEV2, verdict=Verification(deep=True, when=NOW - 60, problems=("0.qcow2 changed",)))
WHOLE = replace(DEV2, verdict=Verification(deep=True, when=NOW - 60))


def found(query: str, order: str = ORDERS[0]) -> list[str]:
    return [view.name for view in arrange((*SAVES.saves, LOW), query, order)]


@each(
    ("query", "names"),
    [
        ("", ["my-app", "damaged", "dev", "dev2", "lost", "low"]),
        ("dev", ["dev", "dev2"]),
        ("DEV !dev2", ["dev"]),
        ("gcc", ["dev"]),
        ("base:debian !dev", ["my-app", "low"]),
        ("base:ubuntu", ["lost"]),
        ("from:dev", ["dev2"]),
        ("place:workspace", ["my-app"]),
        ("problem", ["damaged", "lost"]),
        ("!problem base:debian", ["my-app", "dev", "dev2", "low"]),
        ("! !!", ["my-app", "damaged", "dev", "dev2", "lost", "low"]),
        ("nothing:here", []),
        ("[red]", ["my-app"]),
    ],
)
def test_a_filter_is_of_words_that_all_must_match(query: str, names: list[str]) -> None:
    assert found(query) == names


def test_what_verifying_has_found_is_a_problem_too() -> None:
    assert [view.name for view in arrange((DEV, BAD, WHOLE), "problem", "name")] == ["dev2"]
    assert trouble_of(BAD) == ("damaged", ("0.qcow2 changed",))
    assert trouble_of(WHOLE) == ("", ())


def test_orders_put_the_youngest_and_the_largest_first() -> None:
    assert found("", "age")[-2:] == ["dev2", "dev"]
    assert found("", "size")[:3] == ["lost", "dev2", "dev"]
    assert found("", "frees")[:3] == ["lost", "dev2", "my-app"]


def test_the_trash_is_filtered_and_ordered() -> None:
    views = (GONE, SPOILT, trashed("a", own=9 * MIB))
    assert [v.name for v in arrange_trash(views, "gcc", "removed")] == ["dev"]
    assert [v.name for v in arrange_trash(views, "!gcc !", "name")] == ["a", "spoilt"]
    assert arrange_trash(views, "", "frees")[0].name == "a"


def test_what_several_free_is_more_than_the_sum_of_each() -> None:
    assert freed_together([DEV, DEV2]) == DEV.own + DEV2.own
    # Only now nobody has the layer any more.
    assert freed_together([DEV, DEV2, GONE]) == DEV.own + DEV2.own + GONE.own + 64 * MIB
    twice = saved("twice", own=0, shared=5, shared_files={(1, 2): (5, 2, 2)})
    assert freed_together([twice]) == 5
    assert freed_together([]) == 0


def test_the_size_of_all_counts_every_file_once() -> None:
    assert SAVES.size == sum(view.own for view in SAVES.saves) + 64 * MIB
    assert SAVES.trash_frees == GONE.own + SPOILT.own


@each("plan", [plan_saves_columns, plan_trash_columns])
def test_columns_fit_at_every_width(plan: object) -> None:
    for width in range(24, 220):
        columns: tuple[Column, ...] = plan(width)  # type: ignore[operator]
        assert sum(column.width + PADDING for column in columns) <= max(width, 24), width
        assert all(column.width > 0 for column in columns)
        row = save_row(DEV, WORLD) if plan is plan_saves_columns else trash_row(GONE, WORLD)
        assert {column.key for column in columns} <= set(row.cells)


def test_columns_go_one_by_one() -> None:
    def keys(width: int) -> str:
        return " ".join(column.key for column in plan_saves_columns(width))

    assert keys(115) == "name size shared frees base age from children note"
    assert keys(75) == "name size frees base age note"
    assert keys(50) == "name frees age note"
    assert keys(34) == "named frees"


def test_a_problem_has_glyph_word_and_colour_at_every_width() -> None:
    for view, word in ((DAMAGED, "✗ damaged"), (LOST, "✗ no base"), (BAD, "✗ damaged")):
        cells = save_row(view, WORLD).cells
        assert cells["note"].text.startswith(f"{word}: ")
        assert cells["named"].text == f"{word}: {view.name}"
        assert {cells[key].role for key in ("note", "name", "named")} == {"error"}
    assert trash_row(SPOILT, WORLD).cells["note"].text.startswith("✗ damaged: overlays")


def test_what_is_under_way_takes_the_place_of_the_note() -> None:
    job = Job(
        sandbox_id="export:1",
        name="dev",
        verb=JobVerb.EXPORT,
        stage="writing",
        about=frozenset({DEV.key}),
        done=43,
        total=100,
        rate=5.0 * MIB,
    )
    world = replace(WORLD, jobs=(job,))
    assert save_row(DEV, world).cells["note"].text == (
        "◐ exporting: writing 43% · 5.0M/s · 0s left"
    )
    assert save_row(DEV2, world).cells["note"].text == ""
    assert jobs_text(world).endswith("0s left (dev)")
    assert jobs_text(replace(world, jobs=(replace(job, cancelling=True),))) == "◐ cancelling (dev)"
    stop = replace(job, verb=JobVerb.STOP)
    assert jobs_text(replace(world, jobs=(stop,))) == "◐ 1 under way (J)"
    assert jobs_text(replace(world, jobs=(stop, job))) == "◐ 2 under way (J)"
    assert jobs_text(replace(world, jobs=())) == ""


def test_what_was_read_whole_says_so_beside_its_note() -> None:
    cell = save_row(replace(WHOLE, note="mine"), WORLD).cells["note"]
    assert (cell.text, cell.role, cell.note) == ("✓ whole", "success", "mine")


def lines(view: SaveFacts, world: World = WORLD) -> dict[str, str]:
    return {
        label: "".join(text for text, _ in parts) for label, parts in describe_save(view, world)
    }


def test_the_details_tell_everything() -> None:
    told = lines(replace(DEV, volatile=("/run", "/tmp", "/a", "/b"), parent="root"))
    assert told == {
        "State": "● kept · 8d old · x86_64 · 2 layers · file system at rest",
        "Deleting": "frees 12K · 64M shared with others stays",
        "Base image": "debian 13.1 · 9c1e5a77b0d2",
        "Note": "gcc, make",
        "Lineage": (
            "from the save root · children: the save dev2 and the sandbox web · works without it"
        ),
        "Settings": "512M · 1 CPU · network mounts only",
        "Missing": "/run, /tmp, /a and 1 more: only in the guest's memory then",
        "Path": f"/saves/dev · {DEV.id}",
    }
    assert lines(LOW)["Needed"] == "by top; it is their base"
    assert lines(DAMAGED)["Why"] == DAMAGED.problems[0]
    assert lines(WHOLE)["State"].startswith("✓ whole")
    assert lines(BAD)["State"].endswith("every byte read 1m ago")
    assert "quick check" in lines(replace(DEV, verdict=Verification(deep=False, when=NOW)))["State"]


def test_the_details_say_that_a_guest_could_not_write_out_its_memory() -> None:
    told = lines(replace(DEV, unsynced=True))["Missing"]
    assert (
        told == "what its guest had not yet written to its disk: it was paused, or did not answer"
    )


def test_the_details_say_who_has_not_made_it() -> None:
    offered = replace(DEV, is_own=False, place="workspace", left_out=("network full",))
    assert lines(offered)["Origin"] == "it came with this directory: left out, network full"
    assert lines(replace(DEV, is_own=False))["Origin"] == "it was imported"
    assert "Origin" not in lines(DEV)


def test_what_was_no_save_stays_in_the_trash() -> None:
    kept = replace(GONE, until=None)
    assert left_text(kept, NOW) == "ever"
    told = {label: "".join(text for text, _ in p) for label, p in describe_trashed(kept, WORLD)}
    assert "until you remove it yourself" in told["Removed"]


def test_the_details_of_what_is_in_the_trash() -> None:
    told = {label: parts[0][0] for label, parts in describe_trashed(SPOILT, WORLD)}
    assert told["State"] == "✗ damaged"
    assert (told["Removed"], told["Id"]) == ("2d ago", SPOILT.id)
    overdue = replace(GONE, until=NOW - 1)
    assert trash_row(overdue, WORLD).cells["left"].text == "0"


def test_counts_and_empty_words() -> None:
    assert counts_text(NO_SAVES) == "reading…"
    assert counts_text(SAVES) == (f"5 saves, {972}M · ✗ 2 with problems · 2 in the trash, 80K")
    assert counts_text(NOTHING) == "no saves"
    assert "Reading" in empty_saves_text(NO_SAVES, "") and "Reading" in empty_trash_text(
        NO_SAVES, ""
    )
    assert "“x”" in empty_saves_text(SAVES, "x") and "“x”" in empty_trash_text(SAVES, "x")
    assert "S keeps" in empty_saves_text(NOTHING, "x")
    assert "no permission" in empty_saves_text(SavesView(error="no permission"), "")
    assert "for a week" in empty_trash_text(NOTHING, "")
    assert marked_text([]) == ""
    assert marked_text([DEV, DEV2]) == "2 marked: 5.0M"


def test_names_are_few_and_short() -> None:
    assert names_text(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert len(names_text(["x" * 500])) < 60
    assert came_from_text([DEV]) == "the save dev2 and the sandbox web"
    assert came_from_text([DEV], but=[DEV2]) == "the sandbox web"
    assert came_from_text([DEV, replace(DEV, path="/again")]) == came_from_text([DEV])
    many = replace(DEV, children=("a", "b"), sandboxes=("x", "y"))
    assert came_from_text([many]) == "the saves a, b and the sandboxes x, y"


def test_a_question_before_deleting_names_what_is_lost_and_what_stays() -> None:
    assert losses.of_saves([DEV], NOW) == [
        "dev, 64M, made 8d ago: gcc, make",
        "Deleting for good frees 12K; what others share stays.",
        "What came from it works without it: the save dev2 and the sandbox web.",
    ]
    many = [saved(f"s{n}", own=MIB) for n in range(9)]
    told = losses.of_saves(many, NOW)
    assert told[5:] == ["s5, 1.0M, made 1h ago", "and 3 more", "Deleting for good frees 9.0M."]
    assert losses.of_trash([GONE], NOW) == ["dev, 64M, removed 2d ago", "That frees 40K."]
    assert LAYER in DEV.shared_files
