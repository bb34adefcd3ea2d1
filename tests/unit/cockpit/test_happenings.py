"""What happened to sandboxes, out of two looks at them."""

from __future__ import annotations

from dataclasses import replace

from quicksand.things.status import MountState, Status

from quicksand_tui.model.shown_sandboxes import CheckpointTree, SandboxView
from quicksand_tui.model.world import World
from quicksand_tui.views.happenings import happenings
from tests.unit.app.fakes import AGENT, DATA, DB, NOW, PAST, SRC, WEB, WEB_PAST, kept


def texts(before: tuple[SandboxView, ...], after: tuple[SandboxView, ...]) -> list[str]:
    then, now = World(taken=NOW, sandboxes=before), World(taken=NOW + 1, sandboxes=after)
    return [f"{found.sandbox_id[:2]} {found.text}" for found in happenings(then, now)]


def test_states_names_and_sandboxes_that_come_and_go() -> None:
    crashed = replace(WEB, state=Status.CRASHED, error="kernel panic")
    assert texts((WEB, DB), (crashed, DB)) == ["3f running → crashed: kernel panic"]
    assert texts((WEB,), (WEB, DB)) == ["aa new, stopped"]
    assert texts((WEB, AGENT), (WEB,)) == ["bb deleted"]
    assert texts((WEB,), (replace(WEB, name="www"),)) == ["3f renamed from web"]
    assert texts((WEB,), (replace(WEB, cpu_percent=99.0),)) == []


def test_checkpoints_and_going_back_to_one() -> None:
    more = replace(PAST, checkpoints=(*PAST.checkpoints, kept("c9", "new", "c2")), head="c9")
    assert texts((WEB_PAST,), (replace(WEB_PAST, tree=more),)) == ["3f checkpoint new"]
    auto = kept("c8", "before revert to clean", "c2", auto=True)
    back = replace(PAST, checkpoints=(*PAST.checkpoints, auto), head="c1")
    assert texts((WEB_PAST,), (replace(WEB_PAST, tree=back),)) == [
        "3f automatic checkpoint before revert to clean",
        "3f reverted to clean",
    ]
    assert texts((WEB_PAST,), (replace(WEB_PAST, tree=CheckpointTree()),))[0].endswith("is gone")


def test_what_a_guest_wrote_that_programs_here_run_is_told_once() -> None:
    one = replace(SRC, told=(".envrc",))
    two = replace(SRC, told=(".git/config", ".envrc"))
    before, after = replace(WEB, mounts=(one,)), replace(WEB, mounts=(two,))
    said = f"in {SRC.host}, which programs of the host run"
    assert texts((replace(WEB, mounts=(SRC,)),), (before,)) == [f"3f it wrote .envrc {said}"]
    assert texts((before,), (after,)) == [f"3f it wrote .git/config {said}"]
    assert texts((after,), (replace(after, cpu_percent=9.0),)) == []


def test_a_revert_to_where_it_stood_already_is_told_by_its_other_machine() -> None:
    auto = kept("c8", "before revert to upgraded", "c2", auto=True)
    back = replace(PAST, checkpoints=(*PAST.checkpoints, auto))
    one = replace(WEB_PAST, run="r1")
    other = replace(one, run="r2", origin="upgraded", tree=back)
    assert texts((one,), (other,)) == [
        "3f automatic checkpoint before revert to upgraded",
        "3f reverted to upgraded",
    ]
    elsewhere = replace(one, run="r2", origin="clean", tree=replace(back, head="c1"))
    assert texts((one,), (elsewhere,))[1:] == ["3f reverted to clean"], "once"
    begun_anew = replace(one, run="r2", started=NOW)
    assert texts((one,), (begun_anew,)) == []


def test_mounts_that_come_change_and_go() -> None:
    carried = replace(SRC, traffic=None)
    assert texts((replace(WEB, mounts=(SRC,)),), (replace(WEB, mounts=(carried,)),)) == []
    assert texts((WEB,), (replace(WEB, mounts=(DATA, SRC)),)) == [
        "3f /data is mounted at /mnt/data, read-only",
        "3f /home/me/src is mounted at /mnt/src",
    ]
    ended = replace(SRC, state=MountState.NOT_SERVED)
    assert texts((replace(WEB, mounts=(DATA, SRC)),), (replace(WEB, mounts=(ended,)),)) == [
        "3f /mnt/src is not served",
        "3f /mnt/data is no longer mounted",
    ]


def test_a_mount_that_is_under_way_is_not_told_as_there() -> None:
    mounting = replace(SRC, state=MountState.MOUNTING)
    one, other = replace(WEB, mounts=(mounting,)), replace(WEB, mounts=(SRC,))
    assert texts((WEB,), (one,)) == ["3f /home/me/src at /mnt/src: mounting"]
    assert texts((one,), (other,)) == ["3f /mnt/src is mounted"]


def test_what_could_not_be_read_has_not_happened() -> None:
    then = World(taken=NOW, sandboxes=(WEB, DB))
    blind = World(taken=NOW, sandboxes=(), error="Permission denied")
    assert list(happenings(then, blind)) == list(happenings(blind, then)) == []
    # That one sandbox cannot be read hides nothing of the others.
    partly = replace(then, sandboxes=(WEB, replace(DB, state=Status.RUNNING)), error="web: denied")
    assert [found.text for found in happenings(then, partly)] == ["stopped → running"]


def test_the_first_look_tells_nothing() -> None:
    empty = World(taken=NOW, loaded=False)
    assert list(happenings(empty, World(taken=NOW, sandboxes=(WEB,)))) == []
