"""Sandboxes on disk: the living are left alone, the dead cleared."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.errors import PathError
from quicksand.base.processes import processes_of
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import new_id

from tests.conftest import fake_qemu
from tests.unit.base.test_files import locked_elsewhere
from tests.unit.records.making import (
    PROCESSES,
    RECORD,
    RUN,
    age,
    at_once,
    machine_of,
    make,
    names,
    only,
    place_of,
    reap_in_process,
    runtime_of,
    write_record,
)


def test_what_dead_owners_left_is_removed(registry: Registry) -> None:
    good = make(registry, "good")
    half_made = replace(RECORD, id=new_id(), name="half-made", committed=False)
    to_discard = replace(RECORD, id=new_id(), name="to-discard", discard=True)
    write_record(registry, half_made)
    write_record(registry, to_discard)
    runtime_of(registry, to_discard)
    nameless = sandbox_dir(registry.paths, new_id()).root
    nameless.mkdir()
    age(nameless)
    assert sorted(registry.reap()) == sorted([half_made.id, to_discard.id, nameless.name])
    assert names(registry.paths.sandboxes) == sorted([".names.lock", good.id])
    assert names(registry.paths.runtime) == []
    assert registry.reap() == []


def test_the_runtime_directory_of_a_dead_machine_is_removed_its_sandbox_kept(
    registry: Registry,
) -> None:
    record = make(registry)
    publish_state(machine_of(registry, record), RUN)
    assert registry.reap() == [record.id]
    assert names(registry.paths.runtime) == []
    assert only(registry).record == record


@pytest.mark.parametrize(("committed", "discard"), [(True, True), (False, False), (True, False)])
def test_what_somebody_holds_is_never_touched(
    registry: Registry, committed: bool, discard: bool
) -> None:
    record = make(registry, committed=committed, discard=discard)
    publish_state(machine_of(registry, record), RUN)
    age(runtime_of(registry, record).root)
    with locked_elsewhere(place_of(registry, record).lock):
        assert registry.reap() == []
        make(registry, "another")
        assert names(runtime_of(registry, record).root) == [".quicksand", "1", "current"]
        assert names(place_of(registry, record).root) == [".quicksand", "lock", "sandbox.json"]
        assert registry.inspect(record.id) is not None
    assert record.id in registry.reap()


def test_one_that_is_just_being_made_is_left_alone(registry: Registry) -> None:
    registry.paths.sandboxes.mkdir()
    young = sandbox_dir(registry.paths, new_id()).root
    young.mkdir()
    assert registry.reap() == []
    assert names(registry.paths.sandboxes) == [young.name]


def test_a_runtime_directory_without_a_sandbox_is_removed_when_nothing_of_it_runs(
    registry: Registry,
) -> None:
    runtime = runtime_of(registry, RECORD)
    age(runtime.root)
    with fake_qemu(runtime.of):
        assert registry.reap() == []
        assert runtime.root.exists()
    assert registry.reap() == [RECORD.id]
    assert names(registry.paths.runtime) == []


def test_what_another_data_directory_has_in_the_same_runtime_directory_is_left_to_it(
    registry: Registry, tmp_path: Path
) -> None:
    other = Registry(replace(registry.paths, data=tmp_path / "other"))
    record = make(other)
    runtime = runtime_of(other, record)
    age(runtime.root)
    with locked_elsewhere(place_of(other, record).lock):
        assert registry.reap() == []
        assert runtime.root.exists()
    assert registry.reap() == [], "it is the other's to clear up, dead or alive"
    assert other.reap() == [record.id]
    assert not runtime.root.exists()


def test_a_copy_of_a_data_directory_cannot_take_the_runtime_files_of_the_first(
    registry: Registry, tmp_path: Path
) -> None:
    record = make(registry)
    runtime = runtime_of(registry, record)
    shutil.copytree(registry.paths.data, tmp_path / "copy")
    copy = Registry(replace(registry.paths, data=tmp_path / "copy"))
    with pytest.raises(PathError, match="in use for the sandbox in") as caught:
        copy.clear_runtime(record.id)
    assert "QUICKSAND_RUNTIME_DIR" in caught.value.hint
    assert runtime.root.exists()
    runtime_dir(copy.paths, record.id).check_length()
    registry.clear_runtime(record.id)


def test_runtime_files_that_were_just_being_made_are_no_obstacle(registry: Registry) -> None:
    """Their maker was killed before it could mark them."""
    record = make(registry)
    half_made = runtime_dir(registry.paths, record.id).root
    half_made.mkdir(parents=True)
    registry.clear_runtime(record.id)
    assert not half_made.exists()
    half_made.mkdir()
    assert registry.reap() == [record.id]
    assert not half_made.exists()
    assert only(registry).record == record


def test_a_data_directory_may_be_reached_through_a_link(registry: Registry, tmp_path: Path) -> None:
    record = make(registry)
    runtime = runtime_of(registry, record)
    (tmp_path / "alias").symlink_to(registry.paths.data)
    alias = Registry(replace(registry.paths, data=tmp_path / "alias"))
    with fake_qemu(place_of(registry, record).root):
        assert processes_of(place_of(alias, record).root)
    age(runtime.root)
    assert alias.reap() == [record.id]
    runtime_of(registry, record)
    alias.clear_runtime(record.id)
    assert not runtime.root.exists()


def test_a_young_runtime_directory_without_a_sandbox_is_left_alone(registry: Registry) -> None:
    runtime = runtime_of(registry, RECORD)
    assert registry.reap() == []
    age(runtime.root)
    assert registry.reap() == [RECORD.id]


def test_one_leftover_that_cannot_be_removed_stops_nobody(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        write_record(registry, replace(RECORD, id=new_id(), name=f"n{number}", discard=True))
    stuck = replace(RECORD, id=new_id(), name="stuck", discard=True)
    write_record(registry, stuck)
    (place_of(registry, stuck).root / "immutable").touch()
    unlink = os.unlink

    def refuse(path: Any, *, dir_fd: int | None = None) -> None:
        if path == "immutable":
            raise PermissionError(1, "Operation not permitted")
        unlink(path, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refuse)
        assert len(registry.reap()) == 5
        new = make(registry, "new")
        assert only(registry).record == new, "what is left of it is out of sight"
    registry.reap()
    assert names(registry.paths.sandboxes) == sorted([".names.lock", new.id])


def test_many_can_reap_at_once(registry: Registry) -> None:
    good = make(registry, "good")
    for number in range(10):
        record = replace(RECORD, id=new_id(), name=f"n{number}", discard=True)
        write_record(registry, record)
        runtime_of(registry, record)
    assert at_once(reap_in_process, registry.paths, "") == ["reaped"] * PROCESSES
    registry.reap()
    assert names(registry.paths.sandboxes) == sorted([".names.lock", good.id])
    assert names(registry.paths.runtime) == []
