"""From a world to rows and lines, without an app."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.image_info import ImageInfo
from quicksand.things.sandbox_facts import TrafficRates
from quicksand.things.status import Status

from quicksand_tui.door.silence import with_traffic
from quicksand_tui.model.jobs import Job, JobVerb
from quicksand_tui.model.shown_sandboxes import SandboxView
from quicksand_tui.model.world import HostView, Panel, Selection, World
from quicksand_tui.views.counts import counts_text, empty_text, host_text
from quicksand_tui.views.overview import laid_out, overview
from quicksand_tui.views.sandbox_rows import (
    NETWORK_COLUMN,
    PADDING,
    ListNeeds,
    arrange_sandboxes,
    image_row,
    list_needs,
    plan_image_columns,
    plan_sandbox_columns,
    sandbox_row,
    with_jobs,
)
from quicksand_tui.widgets.details import describe
from tests.each import each
from tests.unit.app.busy_day import RICH
from tests.unit.app.fakes import AGENT, BROKEN, DB, DEBIAN, EMPTY, FULL, NOW, OLD, WEB


def row_of(view: SandboxView, world: World = FULL) -> dict[str, str]:
    found = next(sandbox_row(v, world) for v in world.sandboxes if v.id == view.id)
    return {key: cell.text for key, cell in found.cells.items()}


def test_a_running_sandbox_shows_what_it_uses() -> None:
    assert row_of(WEB) == {
        "state": " running",
        "name": "web",
        "image": "debian",
        "age": "3h",
        "cpu": "2%",
        "spark": "",
        "memory": "183M",
        "memory-spark": "",
        "disk": "42M",
        "network": "",
        "accel": "tcg",
        "ports": "8080→80",
        "last": "",
    }
    row = sandbox_row(WEB, replace(FULL, doing={WEB.id: "pytest -q"}))
    assert row.cells["state"].lead == (("●", "success"),)
    assert row.cells["last"].text == "pytest -q"


def test_a_network_is_shown_as_rates() -> None:
    rates = TrafficRates(received=1.2 * 2**20, sent=0.4, history=(0.0, 5.0))
    world = with_traffic(FULL, {WEB.id: rates, "gone": rates})
    row = row_of(WEB, world)
    assert row["network"] == "↓1.2M ↑0"
    assert row_of(DB, world)["network"] == ""
    stopped = replace(world, sandboxes=(replace(WEB, state=Status.STOPPED, traffic=rates),))
    assert row_of(WEB, stopped)["network"] == ""
    assert with_traffic(FULL, {}) is FULL


def test_the_largest_rates_fit_into_their_column() -> None:
    wide = {column.key: column.width for column in plan_sandbox_columns(240)}
    for rate in (999.4, 1023.0, 9.94 * 2**20, 999.4 * 2**30, 2.0**59):
        rates = TrafficRates(received=rate, sent=rate)
        assert (
            len(row_of(WEB, with_traffic(FULL, {WEB.id: rates}))["network"]) <= wide[NETWORK_COLUMN]
        )


def test_a_stopped_sandbox_has_no_use_of_the_cpu() -> None:
    row = row_of(DB)
    assert (row["cpu"], row["memory"], row["disk"]) == ("", "", "420M")


def test_every_state_has_its_own_word_and_a_glyph_and_a_colour() -> None:
    assert len({state.text for state in Status}) == len(Status)
    assert all(state.sign and state.role for state in Status)


@each("width", range(20, 240))
def test_the_columns_fit_into_any_width(width: int) -> None:
    for needs in (None, ListNeeds(name=63, image=40, ports=50, last=90), list_needs(RICH)):
        columns = plan_sandbox_columns(width, needs)
        assert columns[0].key == "state"
        assert sum(column.cells for column in columns) <= width
    if width >= 24:
        assert sum(c.width + PADDING for c in plan_image_columns(width)) <= width


@each(
    ("width", "keys"),
    [
        (22, "state name"),
        (24, "state name cpu"),
        (34, "state name cpu spark"),
        (47, "state name image cpu spark memory"),
        (52, "state name image cpu spark memory disk"),
        (60, "state name image age cpu spark memory disk"),
        (76, "state name image age cpu spark memory disk ports"),
    ],
)
def test_columns_come_by_what_they_are_worth_and_names_are_cut_last(width: int, keys: str) -> None:
    needs = ListNeeds(name=14, image=7, ports=8)
    columns = plan_sandbox_columns(width, needs)
    shown = [column.key for column in columns if column.key != "memory-spark"]
    assert shown == keys.split()
    assert columns[1].width == 14


@each(
    ("query", "names"),
    [
        ("", ["web", "db", "agent-7", "builder", "cc33dd44ee55"]),
        ("WEB", ["web"]),
        ("!web", ["db", "agent-7", "builder", "cc33dd44ee55"]),
        ("state:running", ["web"]),
        ("debian !state:stopped", ["web", "agent-7", "builder"]),
        ("image:deb name:b", ["web", "db", "builder"]),
        ("3f2a", []),
        ("id:3f2a", ["web"]),
        ("!", ["web", "db", "agent-7", "builder", "cc33dd44ee55"]),
        ("nothing:here", []),
    ],
)
def test_the_filter(query: str, names: list[str]) -> None:
    found = arrange_sandboxes(FULL.sandboxes, query, "state")
    assert sorted(view.name for view in found) == sorted(names)


@each(
    ("query", "names"),
    [
        ("age:>1d", ["old"]),
        ("age:<2H", ["new"]),
        ("!age:>1d", ["new", "unknown"]),
        ("disk:>1.5g", ["old"]),
        ("disk:<1g memory:>100m", ["new"]),
        ("cpu:>50%", ["new"]),
        ("~ol", ["old"]),
        ("~nw", ["new", "unknown"]),
        ("~wn", ["unknown"]),  # not from one line of the text to the next
        ("age:>x", []),
        ("disk:>1y", []),
    ],
)
def test_the_filter_compares_amounts_and_finds_letters_in_their_order(
    query: str, names: list[str]
) -> None:
    old = replace(WEB, name="old", created=NOW - 90_000, disk=2 << 30, cpu_percent=2.0)
    new = replace(WEB, name="new", created=NOW - 60, disk=1 << 20, cpu_percent=80.0)
    new = replace(new, memory_used=200 << 20)
    unknown = replace(WEB, name="unknown", created=None, disk=None, memory_used=None)
    unknown = replace(unknown, cpu_percent=None)
    found = arrange_sandboxes([old, new, unknown], query, "name", clock=lambda: NOW)
    assert [view.name for view in found] == sorted(names)


def test_a_job_changes_what_is_shown_of_its_sandbox() -> None:
    job = Job(sandbox_id=DB.id, name="db", verb=JobVerb.START, stage="start QEMU", step=4, steps=5)
    shown = with_jobs(FULL, [job])
    assert shown.sandbox(DB.id) == replace(DB, state=Status.STARTING)
    row = next(sandbox_row(v, shown) for v in shown.sandboxes if v.id == DB.id)
    assert row.cells["name"].note == "4/5 start QEMU"


def test_a_new_sandbox_is_a_row_before_its_record_is_on_disk_and_only_one_after() -> None:
    job = Job(sandbox_id="new:x", name="x", verb=JobVerb.START, image="debian", started=NOW)
    assert [s.name for s in with_jobs(EMPTY, [job]).sandboxes] == ["x"]
    on_disk = replace(EMPTY, sandboxes=(replace(WEB, id="123", name="x"),))
    assert [s.id for s in with_jobs(on_disk, [job]).sandboxes] == ["123"]


def test_counts_and_host() -> None:
    assert counts_text(FULL) == "1 running · 1 paused · 1 stopped · 1 crashed · 1 broken"
    assert counts_text(FULL, room=30) == "1 ● · 1 ‖ · 1 ○ · 2 ✗"
    assert counts_text(EMPTY) == "nothing runs"
    assert counts_text(World(taken=NOW, loaded=False)) == "reading…"
    assert host_text(FULL) == "6.0G RAM · 40G disk free"
    assert host_text(replace(FULL, host=HostView())) == ""
    waiting = replace(FULL.host, spares=2, spares_memory=128 << 20)
    assert host_text(replace(FULL, host=waiting)) == "2 spares 128M · 6.0G RAM · 40G disk free"


def test_emptiness_names_the_next_key() -> None:
    assert empty_text(EMPTY, "") == "n starts your first sandbox, from debian."
    assert "I installs one" in empty_text(replace(EMPTY, images=()), "")
    assert "3 shows why" in empty_text(replace(EMPTY, images=(OLD,)), "")
    assert "esc clears" in empty_text(FULL, "nothing")
    assert "no/such: denied" in empty_text(replace(EMPTY, error="no/such: denied"), "")


def test_a_broken_image_says_so_in_its_row() -> None:
    rows = {view.name: image_row(view, FULL).cells["size"].text for view in FULL.images}
    assert rows == {"debian": "105M", "old": "✗ broken"}


def described(selection: Selection, world: World = FULL) -> str:
    if selection.panel is Panel.SANDBOXES and (view := selection.sandbox) is not None:
        lines = laid_out(overview(view, world), 120)
        return "\n".join("".join(text for text, _ in line) for line in lines)
    title, facts = describe(world, selection)
    return "\n".join(
        [title, *(f"{label} {''.join(text for text, _ in parts)}" for label, parts in facts)]
    )


def test_the_details_warn_of_tcg_and_say_why_it_is_used() -> None:
    text = described(Selection(sandbox=WEB))
    assert "runs on TCG · no security boundary" in text
    assert "kvm: a guest on it did not run" in text
    assert "http://127.0.0.1:8080 → 80" in text
    assert WEB.id in text


def test_the_details_tell_the_epoch_of_one_that_a_fleet_keeps() -> None:
    kept = "restarted elsewhere if its machine is lost"
    assert "epoch" not in described(Selection(sandbox=WEB))
    assert f"epoch 1 · {kept}" in described(Selection(sandbox=replace(WEB, epoch=1)))
    assert f"epoch 2, restarted once · {kept}" in described(
        Selection(sandbox=replace(WEB, epoch=2))
    )
    assert "epoch 1, superseded by the one on node-2" in described(
        Selection(sandbox=replace(WEB, epoch=1, superseded_by="node-2"))
    )


def test_the_details_say_why_something_ended_or_is_broken() -> None:
    assert "QEMU was ended by SIGKILL" in described(Selection(sandbox=AGENT))
    assert "schema_version" in described(Selection(sandbox=BROKEN))
    assert "manifest.json" in described(Selection(panel=Panel.IMAGES, image=OLD))
    assert "Used by 3 sandboxes" in described(
        Selection(panel=Panel.IMAGES, image=DEBIAN),
        replace(FULL, sandboxes=(WEB, DB, AGENT)),
    )


def test_the_details_of_a_job_say_how_to_cancel_it() -> None:
    job = Job(sandbox_id=DB.id, name="db", verb=JobVerb.START, stage="x", started=NOW - 5)
    shown = with_jobs(FULL, [job])
    assert "x · 5s · X cancels" in described(Selection(sandbox=shown.sandbox(DB.id)), shown)


def test_an_image_that_is_to_be_built_says_so_and_can_be_begun_with() -> None:
    to_build = ImageInfo(name="debian", source="recipe")
    fresh = replace(EMPTY, images=(to_build,))
    assert image_row(to_build, fresh).cells["size"].text == "to build"
    text = empty_text(fresh, "")
    assert text == "n builds debian, in some minutes, and starts your first sandbox."
    # What is built already goes first, whatever its name.
    alpine = replace(DEBIAN, name="alpine")
    assert "from alpine" in empty_text(replace(EMPTY, images=(to_build, alpine)), "")
    selection = Selection(panel=Panel.IMAGES, image=to_build)
    title, lines = describe(fresh, selection)
    assert title == "debian"
    assert "not built yet" in str(lines)


def test_columns_that_only_what_runs_fills_make_room_for_others_when_nothing_does() -> None:
    needs = ListNeeds(name=30, image=10, runs=False)
    shown = [column.key for column in plan_sandbox_columns(66, needs)]
    assert {"disk", "age"} <= set(shown) and not {"cpu", "memory", "accel"} & set(shown)
    stopped = replace(RICH, sandboxes=tuple(v for v in RICH.sandboxes if not v.is_live))
    assert list_needs(RICH).runs and not list_needs(stopped).runs
