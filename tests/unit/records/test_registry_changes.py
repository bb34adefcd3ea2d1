"""Sandboxes on disk are made and removed, by many at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.errors import (
    ConfigError,
    DiskSpaceError,
    NameTakenError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import is_locked, write_json
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record, new_id
from quicksand.records.trash import remove_tree
from quicksand.things.status import Status

from quicksand_tui.model.remedy_words import hint_of
from tests.unit.base.test_files import locked_elsewhere
from tests.unit.records.making import (
    PROCESSES,
    RECORD,
    RUN,
    at_once,
    create_in_process,
    machine_of,
    make,
    names,
    only,
    place_of,
    remove_in_process,
)

# Making


def test_a_new_sandbox_is_private_and_locked_by_its_maker(registry: Registry) -> None:
    lock = registry.create(RECORD)
    place = place_of(registry, RECORD)
    assert place.root.stat().st_mode & 0o777 == 0o700
    assert is_locked(place.lock)
    assert names(place.root) == [".quicksand", "lock", "sandbox.json"]
    os.close(lock)
    assert not is_locked(place.lock)


@pytest.mark.parametrize("live", [True, False])
def test_a_taken_name_is_refused_with_its_owners_state(registry: Registry, live: bool) -> None:
    lock = registry.create(RECORD)
    if not live:
        os.close(lock)
    state = "starting" if live else "stopped"
    for name in (RECORD.name, RECORD.id):
        with pytest.raises(NameTakenError, match=f"{name!r} is taken .* {state}") as caught:
            registry.create(replace(RECORD, id=new_id(), name=name))
        assert "rm" in hint_of(caught.value)
    assert len(registry.list()) == 1
    if live:
        os.close(lock)


def test_names_that_differ_in_capitals_alone_are_not_both_given(registry: Registry) -> None:
    """For ssh they are one host where it looks for a connection to go on with."""
    os.close(registry.create(replace(RECORD, name="Web.qs")))
    with pytest.raises(NameTakenError, match=r"capitals alone from that of the sandbox 'Web\.qs'"):
        registry.create(replace(RECORD, id=new_id(), name="web.qs"))
    found = registry.named("Web.qs")
    assert found is not None and found.name == "Web.qs"
    assert registry.named("web.qs") is None


def test_the_name_of_a_start_that_died_is_free(registry: Registry) -> None:
    os.close(registry.create(replace(RECORD, committed=False)))
    record = make(registry)
    assert only(registry).record == record
    assert names(registry.paths.sandboxes) == [".names.lock", record.id]


def test_the_name_of_a_broken_sandbox_can_be_used(registry: Registry) -> None:
    place_of(registry, make(registry)).record.write_text("{")
    make(registry)
    assert {entry.status for entry in registry.list()} == {Status.BROKEN, Status.STOPPED}


def test_a_bad_name_makes_nothing(registry: Registry) -> None:
    with pytest.raises(ConfigError):
        registry.create(replace(RECORD, name="../x"))
    assert names(registry.paths.sandboxes) == []


def test_a_full_disk_leaves_neither_directory_nor_descriptor(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(registry, "another")
    descriptors, before = len(os.listdir("/proc/self/fd")), names(registry.paths.sandboxes)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskSpaceError):
            registry.create(RECORD)
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert names(registry.paths.sandboxes) == before
    os.close(registry.create(RECORD))


def test_of_eight_that_make_the_same_name_at_once_exactly_one_wins(registry: Registry) -> None:
    found = at_once(create_in_process, registry.paths, "box")
    assert found == ["NameTakenError"] * (PROCESSES - 1) + ["made"]
    assert only(registry).name == "box"
    assert len(names(registry.paths.sandboxes)) == 2, "the lock of names and the one sandbox"


# Removing


def broken(registry: Registry, record: Record) -> None:
    place_of(registry, record).record.write_text("{")


def crashed(registry: Registry, record: Record) -> None:
    write_json(place_of(registry, record).exit, {"code": 1})


def with_runtime(registry: Registry, record: Record) -> None:
    publish_state(machine_of(registry, record), RUN)


def without_lock(registry: Registry, record: Record) -> None:
    place_of(registry, record).lock.unlink()


def without_record(registry: Registry, record: Record) -> None:
    place_of(registry, record).record.unlink()


@pytest.mark.parametrize(
    "state", [broken, crashed, with_runtime, without_lock, without_record], ids=lambda f: f.__name__
)
def test_a_sandbox_can_be_removed_in_any_state(
    registry: Registry, state: Callable[[Registry, Record], None]
) -> None:
    record, good = make(registry), make(registry, "good")
    (place_of(registry, record).root / "disk.qcow2").write_text("data")
    state(registry, record)
    registry.remove(record.id)
    assert not place_of(registry, record).root.exists()
    assert not runtime_dir(registry.paths, record.id).root.exists()
    assert only(registry).record == good
    with pytest.raises(SandboxNotFoundError, match="does not exist any more"):
        registry.remove(record.id)


def test_a_live_sandbox_cannot_be_removed(registry: Registry) -> None:
    record = make(registry)
    with locked_elsewhere(place_of(registry, record).lock):
        publish_state(machine_of(registry, record), RUN)
        with pytest.raises(StateError, match="running"):
            registry.remove(record.id)
        assert only(registry).status is Status.RUNNING
    registry.remove(record.id)


def test_looking_for_one_that_is_gone_does_not_wait_for_its_lock(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("quicksand.records.registry.lock_within")
    with pytest.raises(SandboxNotFoundError):
        registry.lock("gone")
    assert names(registry.paths.sandboxes) == []


def test_of_eight_that_remove_it_at_once_one_does_and_the_others_are_told(
    registry: Registry,
) -> None:
    for _ in range(3):
        record = make(registry)
        for number in range(50):
            (place_of(registry, record).root / f"file{number}").touch()
        found = at_once(remove_in_process, registry.paths, record.id)
        assert found.count("removed") == 1
        assert {*found} <= {"removed", "SandboxNotFoundError", "StateError"}
        assert names(registry.paths.sandboxes) == [".names.lock"]


def test_removing_a_tree_that_is_gone_is_no_error(tmp_path: Path) -> None:
    remove_tree(tmp_path / "gone")


def test_removing_follows_no_link(registry: Registry, tmp_path: Path) -> None:
    record = make(registry)
    (tmp_path / "kept").write_text("data")
    (place_of(registry, record).root / "link").symlink_to(tmp_path)
    registry.remove(record.id)
    assert names(tmp_path) == ["kept"]
