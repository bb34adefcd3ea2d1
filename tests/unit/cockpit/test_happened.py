"""Events for scripts, out of two looks at the sandboxes."""

from __future__ import annotations

import json
from dataclasses import replace

from quicksand.things.status import MountState, Status

from quicksand_tui.model.happened import (
    Fact,
    Happened,
    HappenedKind,
    differences,
    past_of,
    words_of,
)
from quicksand_tui.model.shown_sandboxes import CheckpointTree, CheckpointView, SandboxView
from quicksand_tui.model.world import World
from tests.unit.app.fakes import AGENT, DATA, DB, NOW, PAST, SRC, WEB, WEB_PAST, kept


def found(before: SandboxView | None, after: SandboxView | None) -> list[Happened]:
    then = World(taken=NOW, sandboxes=(before,) if before else ())
    now = World(taken=NOW + 1, sandboxes=(after,) if after else ())
    return list(differences(then, now))


def events(before: SandboxView | None, after: SandboxView | None) -> list[dict[str, Fact]]:
    lines = [event.to_json() for event in found(before, after)]
    assert all(line["time"] == NOW + 1 for line in lines)
    json.dumps(lines)
    return [{k: v for k, v in line.items() if k not in ("time", "id", "name")} for line in lines]


def test_a_sandbox_comes_changes_and_goes() -> None:
    assert events(None, DB) == [{"event": "created", "state": "stopped", "image": "debian"}]
    assert events(DB, None) == [{"event": "deleted"}]
    assert events(WEB, replace(WEB, cpu_percent=99.0)) == []
    assert events(WEB, replace(WEB, name="www")) == [{"event": "renamed", "from": "web"}]
    crashed = replace(WEB, state=Status.CRASHED, error="kernel panic")
    assert events(WEB, crashed) == [
        {"event": "state", "from": "running", "to": "crashed", "error": "kernel panic"}
    ]
    (told,) = found(WEB, crashed)
    assert (told.id, told.name) == (WEB.id, "web")
    assert words_of(told) == "running → crashed: kernel panic"


def test_checkpoints_are_made_and_deleted() -> None:
    more = replace(PAST, checkpoints=(*PAST.checkpoints, kept("c9", "{new}", "c2")), head="c9")
    (line,) = events(WEB_PAST, replace(WEB_PAST, tree=more))
    assert line == {
        "event": "checkpoint",
        "checkpoint": "c9",
        "tag": "{new}",
        "parent": "c2",
        "auto": False,
        "pause_s": 0.0231,
    }
    (event,) = found(WEB_PAST, replace(WEB_PAST, tree=more))
    assert words_of(event) == "checkpoint {new}"
    gone = events(WEB_PAST, replace(WEB_PAST, tree=CheckpointTree()))
    assert {line["event"] for line in gone} == {"checkpoint_deleted"}


def test_a_revert_is_told_once_also_to_where_it_stood() -> None:
    back = replace(PAST, head="c1")
    assert events(WEB_PAST, replace(WEB_PAST, tree=back)) == [{"event": "reverted", "to": "clean"}]
    one = replace(WEB_PAST, run="r1")
    assert events(one, replace(one, run="r2", origin="upgraded")) == [
        {"event": "reverted", "to": "upgraded"}
    ]
    assert events(one, replace(one, run="r2", origin="clean", tree=back)) == [
        {"event": "reverted", "to": "clean"}
    ]


def test_mounts_come_change_and_go() -> None:
    mounting = replace(SRC, state=MountState.MOUNTING)
    one, two = replace(WEB, mounts=(mounting,)), replace(WEB, mounts=(SRC, DATA))
    facts = {"host": "/home/me/src", "guest": "/mnt/src", "readonly": False}
    assert events(WEB, one) == [{"event": "mounted", **facts, "state": "mounting"}]
    assert events(one, two) == [
        {"event": "mount_state", **facts, "state": "mounted"},
        {
            "event": "mounted",
            "host": "/data",
            "guest": "/mnt/data",
            "readonly": True,
            "state": "mounted",
        },
    ]
    assert events(two, WEB) == [
        {"event": "unmounted", "host": "/home/me/src", "guest": "/mnt/src"},
        {"event": "unmounted", "host": "/data", "guest": "/mnt/data"},
    ]
    wrote = replace(WEB, mounts=(replace(SRC, told=(".envrc",)),))
    before = replace(WEB, mounts=(SRC,))
    assert events(before, wrote) == [{"event": "wrote", "host": "/home/me/src", "path": ".envrc"}]


def test_the_past_is_what_the_disk_tells() -> None:
    world = World(taken=NOW, sandboxes=(WEB_PAST, AGENT))
    past = sorted(past_of(world), key=lambda event: event.time)
    assert [words_of(event) for event in past if event.id == WEB.id] == [
        "created, from debian",
        "running",
        "checkpoint clean",
        "checkpoint upgraded",
        "checkpoint tried-something",
        "automatic checkpoint before revert to clean 12:00:00",
    ]


def test_the_past_does_not_tell_of_a_checkpoint_that_cannot_be_read() -> None:
    damaged = CheckpointView(id="c0ffee00", tag="c0ffee00", name="c0ffee00", error="no JSON")
    tree = CheckpointTree(checkpoints=(damaged,))
    view = SandboxView(id="a", name="web", state=Status.STOPPED, created=1.0, tree=tree)
    told = [one.kind for one in past_of(World(taken=2.0, sandboxes=(view,)))]
    assert told == [HappenedKind.CREATED]
