"""What a start asks of all sandboxes at once, and that it is found whatever lies there."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from quicksand.base.errors import NameTakenError
from quicksand.base.files import read_json, try_lock, write_json
from quicksand.base.paths import Paths
from quicksand.base.removal import make_marked, remove
from quicksand.records import inspection
from quicksand.records import registry as registry_module
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Glance, Registry, glance_at_all, ids_in
from quicksand.records.sandboxes import new_id
from quicksand.records.trash import Trash
from quicksand.things.status import Status

from tests.unit.base.test_files import locked_elsewhere
from tests.unit.records.making import RECORD, age, make, place_of, runtime_of

STEPS = ("make_marked", "lock_within", "write_json")
"""What making a sandbox calls, in this order."""


def record_counted(monkeypatch: pytest.MonkeyPatch, of: Any, name: str) -> list[Any]:
    """Note each call of a function in a module."""
    calls, real = [], getattr(of, name)

    def counting(*given: Any, **more: Any) -> Any:
        calls.append(given)
        return real(*given, **more)

    monkeypatch.setattr(of, name, counting)
    return calls


def test_a_start_reads_each_stopped_sandbox_once_and_looks_no_further(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 20
    for number in range(count):
        make(registry, f"stopped-{number}")
    read = record_counted(monkeypatch, registry_module, "read_json")
    inspected = record_counted(monkeypatch, inspection, "read_json")
    looked_at = record_counted(monkeypatch, registry_module, "is_locked")
    reaped = record_counted(monkeypatch, registry_module, "runtime_dir")
    make(registry, "another")
    assert len(read) == count
    assert not inspected
    assert not looked_at
    assert not reaped


def test_what_cannot_be_read_is_no_reason_to_remove_it(registry: Registry) -> None:
    fifo, damaged, gone, kept = (make(registry, f"box-{number}") for number in range(4))
    place_of(registry, fifo).record.unlink()
    os.mkfifo(place_of(registry, fifo).record)
    place_of(registry, damaged).record.write_text('{"name": "box-1", "committed": ')
    place_of(registry, gone).record.unlink()
    (registry.paths.sandboxes / ".importing-lock").touch()
    found = {glance.id: glance for glance in glance_at_all(registry.paths.sandboxes)}
    assert found == {
        fifo.id: Glance(fifo.id, "", False),
        damaged.id: Glance(damaged.id, "", False),
        gone.id: Glance(gone.id, "", True),
        kept.id: Glance(kept.id, "box-3", False),
    }


def test_a_directory_that_is_removed_meanwhile_is_as_one_without_a_record(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make(registry, "first"), make(registry, "second")
    real = read_json

    def removing(path: str) -> dict[str, Any]:
        for record in (first, second):
            if record.id not in path:
                remove(place_of(registry, record).root)
        return real(path)

    monkeypatch.setattr(registry_module, "read_json", removing)
    assert registry.named("third") is None
    make(registry, "third")
    assert registry.named("third") is not None


def test_nothing_is_left_of_those_in_no_directory(tmp_path: Path) -> None:
    assert [*glance_at_all(tmp_path / "none")] == []
    (tmp_path / "file").touch()
    assert ids_in(tmp_path / "file") == []


def test_equal_configs_are_read_once_and_each_sandbox_has_its_own(registry: Registry) -> None:
    configs = [SandboxConfig("debian"), SandboxConfig("debian"), SandboxConfig("debian", cpus=2)]
    for number, config in enumerate(configs):
        make(registry, f"box-{number}", config=config)
    found = {entry.name: entry.record.config for entry in registry.list() if entry.record}
    assert [found[f"box-{number}"] for number in range(3)] == configs
    assert found["box-0"] is found["box-1"]


@pytest.mark.parametrize("depth", range(50, 1000, 50))
def test_a_config_nested_as_deep_as_can_be_is_one_that_is_broken(
    registry: Registry, depth: int
) -> None:
    record = make(registry, "box")
    written = json.dumps(record.to_json() | {"config": "here"})
    nested = '{"image":' * depth + "1" + "}" * depth
    place_of(registry, record).record.write_text(written.replace('"here"', nested))
    (entry,) = registry.list()
    assert entry.status is Status.BROKEN
    assert registry.named("another") is None


def test_those_that_run_are_found_without_reading_the_others(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [make(registry, f"box-{number}") for number in range(5)]
    damaged, odd = made[3:]
    place_of(registry, damaged).record.write_text("{")
    place_of(registry, odd).lock.unlink()
    place_of(registry, odd).lock.mkdir()
    read = record_counted(monkeypatch, inspection, "read_json")
    assert registry.list_live() == []
    assert not read
    with locked_elsewhere(place_of(registry, made[1]).lock):
        assert registry.list_live() == [entry for entry in registry.list() if entry.is_live]
        assert [entry.id for entry in registry.list_live()] == [made[1].id]


def test_of_what_is_in_the_trash_only_what_is_overdue_is_looked_at(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_ = Trash(registry.paths).root
    now = time.time()
    for number, removed in enumerate([now, now - 60, now - 8 * 86400, math.inf]):
        record = make(registry, f"box-{number}")
        about = {"id": record.id, "name": record.name, "removed": removed, "why": "", "instant": ""}
        place_of(registry, record).trashed.write_text(json.dumps(about))
        bin_.mkdir(exist_ok=True)
        place_of(registry, record).root.rename(bin_ / record.id)
    looked_at = record_counted(monkeypatch, Trash, "_look_at")
    make(registry, "another")
    assert len(looked_at) == 2, "the overdue one, and the one whose time makes no sense"
    assert len(Trash(registry.paths).list()) == 4


@pytest.fixture
def other(registry: Registry) -> Registry:
    """The same, as another process has it."""
    return Registry(registry.paths)


def test_a_name_that_went_to_another_sandbox_is_found_there(
    registry: Registry, other: Registry
) -> None:
    old = make(registry, "box")
    found = registry.named("box")
    assert found is not None
    assert found.id == old.id
    other.remove(old.id)
    assert registry.named("box") is None
    new = make(other, "box")
    found = registry.named("box")
    assert found is not None
    assert found.id == new.id


def test_a_name_that_was_changed_by_hand_is_found(registry: Registry, other: Registry) -> None:
    one, two = make(registry, "one"), make(registry, "two")
    for name in ("one", "two"):
        assert registry.named(name) is not None
    other.save(replace(one, name="two"))
    other.save(replace(two, name="one"))
    found = registry.named("one"), registry.named("two")
    assert [entry and entry.id for entry in found] == [two.id, one.id]
    with pytest.raises(NameTakenError):
        make(registry, "ONE")


def test_a_name_that_is_known_is_found_without_reading_the_others(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        make(registry, f"box-{number}")
    assert registry.named("box-5") is not None
    read = record_counted(monkeypatch, registry_module, "read_json")
    assert registry.named("box-5") is not None
    assert not read


def _die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _then_die(step: Callable[..., Any]) -> Callable[..., Any]:
    def stepping(*given: Any, **more: Any) -> Any:
        done = step(*given, **more)
        # The first lock is the one on names.
        if step.__name__ != "lock_within" or given[0].name == "lock":
            _die()
        return done

    return stepping


def _make_and_be_killed(paths: Paths, step: str, *, before: bool) -> None:
    real = getattr(registry_module, step)
    setattr(registry_module, step, _die if before else _then_die(real))
    Registry(paths).create(replace(RECORD, id=new_id(), name="box", committed=False))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("step", STEPS)
def test_a_maker_killed_at_any_step_keeps_no_name_and_leaves_nothing(
    registry: Registry, step: str, before: bool
) -> None:
    make(registry, "first")
    child = multiprocessing.get_context("fork").Process(
        target=_make_and_be_killed, args=(registry.paths, step), kwargs={"before": before}
    )
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    child.close()
    box = make(registry, "box")
    for id_ in ids_in(registry.paths.sandboxes):
        age(registry.place(id_).root)
    registry.reap()
    assert sorted(entry.name for entry in registry.list()) == ["box", "first"]
    assert len(ids_in(registry.paths.sandboxes)) == 2
    assert registry.find("box").id == box.id


KINDS = ("kept", "ephemeral", "unfinished", "no record", "damaged", "another schema")


@st.composite
def sandboxes(draw: st.DrawFn) -> list[tuple[str, bool, bool, bool]]:
    """For each: what it is, whether somebody holds it, whether it has a runtime directory, and
    whether it has just been made."""
    one = st.tuples(st.sampled_from(KINDS), st.booleans(), st.booleans(), st.booleans())
    return draw(st.lists(one, max_size=6))


def _put(registry: Registry, kind: str, *, has_runtime: bool, is_young: bool) -> str:
    record = replace(
        RECORD,
        id=new_id(),
        name=f"box-{new_id()}",
        discard=kind == "ephemeral",
        committed=kind != "unfinished",
    )
    place = place_of(registry, record)
    registry.paths.sandboxes.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_marked(place.root)
    place.lock.touch()
    written = record.to_json()
    if kind == "another schema":
        written |= {"schema_version": 99, "discard": True}
    if kind == "damaged":
        place.record.write_text("{")
    elif kind != "no record":
        write_json(place.record, written, durable=False)
    if has_runtime:
        runtime_of(registry, record)
    if not is_young:
        age(place.root)
    return record.id


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="qsg-") as directory:
        yield Path(directory)


@given(sandboxes())
def test_a_glance_reaps_what_a_look_at_each_would(
    scratch: Path, made: list[tuple[str, bool, bool, bool]]
) -> None:
    data = scratch / new_id()
    registry = Registry(Paths(runtime=data / "run", data=data, cache=data / "cache"))
    with ExitStack() as held:
        for kind, is_held, has_runtime, is_young in made:
            id_ = _put(registry, kind, has_runtime=has_runtime, is_young=is_young)
            if is_held:
                lock = try_lock(registry.place(id_).lock)
                assert lock is not None
                held.callback(os.close, lock)
        there = {*ids_in(registry.paths.sandboxes)}
        registry.reap()
        left = {*ids_in(registry.paths.sandboxes)}
        everyone = Registry(registry.paths)
        assert not any(everyone._reap_one(id_) for id_ in there & left)
        for id_ in there - left:
            assert not registry.place(id_).root.exists()
        assert len(left) >= sum(kind in ("kept", "damaged", "another schema") for kind, *_ in made)
