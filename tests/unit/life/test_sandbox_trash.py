"""Removed sandboxes: in one place or the other at every instant, whole, and gone after a week."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base import ageing
from quicksand.base.ageing import CONFIRMED_S, NOTE
from quicksand.base.errors import (
    ConfigError,
    DiskSpaceError,
    HistoryError,
    NameTakenError,
    SandboxNotFoundError,
    StateError,
)
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import Paths
from quicksand.life.sandbox_removal import SandboxTrash
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.records.trash import TRASH_KEPT_S
from quicksand.things.status import Status

from quicksand_tui.model.remedy_words import hint_of
from tests.faults import Fault, fault
from tests.kills import kill_at_each
from tests.unit.aged import make_overdue
from tests.unit.base.test_files import locked_elsewhere
from tests.unit.records.making import make

__all__ = ["fault"]

DATA = b"what the guest has written" * 1000


@pytest.fixture
def registry(places: Paths) -> Registry:
    return Registry(places)


@pytest.fixture
def trash(registry: Registry) -> SandboxTrash:
    return SandboxTrash(registry)


def filled(registry: Registry, name: str = "box") -> Record:
    """A stopped sandbox with something on its disk, and memory."""
    record = make(registry, name)
    place = sandbox_dir(registry.paths, record.id)
    place.make()
    place.layer("0123456789ab").write_bytes(DATA)
    (place.memory / "0123456789ab.pages").write_bytes(DATA)
    return record


def is_whole(place: SandboxDir) -> bool:
    return (
        place.layer("0123456789ab").read_bytes() == DATA
        and (place.memory / "0123456789ab.pages").read_bytes() == DATA
    )


def names(registry: Registry) -> list[str]:
    return [entry.name for entry in registry.list()]


def left(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()} - {".names.lock", ".trash"}


# There and back


def test_a_removed_sandbox_is_in_the_trash_with_all_it_had(
    registry: Registry, trash: SandboxTrash
) -> None:
    record = filled(registry)
    before = time.time()
    put = trash.put(record.id, why="while it ran", instant="abcdef012345")
    assert names(registry) == []
    (found,) = trash.list()
    assert found == put
    assert (found.id, found.name, found.why) == (record.id, "box", "while it ran")
    assert found.instant == "abcdef012345"
    assert before <= found.removed <= time.time()
    assert found.record == record
    assert is_whole(SandboxDir(found.root))


def test_it_comes_back_as_it_was(registry: Registry, trash: SandboxTrash) -> None:
    record = filled(registry)
    trash.put(record.id)
    entry = trash.restore("box")
    assert (entry.id, entry.name, entry.status) == (record.id, "box", Status.STOPPED)
    assert entry.record == record
    assert is_whole(sandbox_dir(registry.paths, record.id))
    assert trash.list() == []


def test_it_can_be_removed_and_brought_back_again(registry: Registry, trash: SandboxTrash) -> None:
    record = filled(registry)
    for round_ in range(3):
        trash.put(record.id, why=str(round_))
        assert trash.list()[0].why == str(round_)
        trash.restore(record.id)
        assert is_whole(sandbox_dir(registry.paths, record.id))


def test_of_one_name_the_last_removed_comes_back_and_any_by_its_id(
    registry: Registry, trash: SandboxTrash
) -> None:
    first, second = filled(registry), None
    trash.put(first.id)
    second = filled(registry)
    trash.put(second.id)
    assert trash.restore("box").id == second.id
    with pytest.raises(NameTakenError) as taken:
        trash.restore(first.id)
    assert f"restore {first.id} --name NEW" in hint_of(taken.value)
    assert [found.id for found in trash.list()] == [first.id]
    entry = trash.restore(first.id, "other")
    assert (entry.id, entry.name) == (first.id, "other")
    assert entry.record == replace(first, name="other")
    assert is_whole(sandbox_dir(registry.paths, first.id))


def test_a_name_in_the_trash_is_free(registry: Registry, trash: SandboxTrash) -> None:
    trash.put(filled(registry).id)
    filled(registry)
    assert names(registry) == ["box"]


def test_a_bad_new_name_is_refused_and_it_stays(registry: Registry, trash: SandboxTrash) -> None:
    trash.put(filled(registry).id)
    with pytest.raises(ConfigError):
        trash.restore("box", "no/name")
    assert len(trash.list()) == 1


def test_who_is_not_there_is_not_found(registry: Registry, trash: SandboxTrash) -> None:
    with pytest.raises(SandboxNotFoundError) as missing:
        trash.restore("box")
    assert missing.value.hint == "it is empty"
    trash.put(filled(registry).id)
    with pytest.raises(SandboxNotFoundError) as missing:
        trash.restore("bok")
    assert "'box'" in missing.value.hint


def test_who_looks_for_a_removed_one_is_told_where_it_is(
    registry: Registry, trash: SandboxTrash
) -> None:
    trash.put(filled(registry).id)
    with pytest.raises(SandboxNotFoundError) as found:
        registry.find("box")
    assert "restore box" in hint_of(found.value)


def test_memory_elsewhere_goes_along(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "memory"
    registry = Registry(replace(places, memory=elsewhere))
    trash, record = SandboxTrash(registry), filled(registry)
    target = elsewhere / record.id
    assert sandbox_dir(registry.paths, record.id).memory.readlink() == target
    found = trash.put(record.id)
    assert is_whole(SandboxDir(found.root))
    assert found.places == (found.root, target)
    assert found.footprint.size >= 2 * len(DATA)
    trash.restore("box")
    assert is_whole(sandbox_dir(registry.paths, record.id))
    trash.put(record.id)
    trash.empty([record.id])
    assert not target.exists()


def test_one_that_cannot_be_read_goes_there_and_back_too(
    registry: Registry, trash: SandboxTrash
) -> None:
    record = filled(registry)
    place = sandbox_dir(registry.paths, record.id)
    place.record.write_text("{")
    found = trash.put(record.id)
    assert (found.name, found.record) == (record.id, None)
    assert trash.restore(record.id).status is Status.BROKEN
    assert is_whole(place)


# What is in use stays


def test_one_that_runs_is_refused(registry: Registry, trash: SandboxTrash) -> None:
    record = filled(registry)
    with (
        locked_elsewhere(sandbox_dir(registry.paths, record.id).lock),
        pytest.raises(StateError, match="running"),
    ):
        trash.put(record.id)
    assert names(registry) == ["box"]
    assert trash.list() == []


def test_one_whose_checkpoints_somebody_works_on_is_refused(
    registry: Registry, trash: SandboxTrash, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quicksand.life.sandbox_removal.LOCK_WAIT_S", 0.05)
    record = filled(registry)
    place = sandbox_dir(registry.paths, record.id)
    with locked_elsewhere(place.history_lock), pytest.raises(HistoryError, match="box"):
        trash.put(record.id)
    assert names(registry) == ["box"]


def test_where_the_disk_is_full_it_stays_and_the_way_out_is_named(
    registry: Registry, trash: SandboxTrash, fault: Fault
) -> None:
    record = filled(registry)
    root, hints = registry.paths.sandboxes, []
    for number in range(1, 100):
        with fault.at(number, root, errno.ENOSPC):
            try:
                trash.put(record.id)
            except DiskSpaceError as error:
                hints.append(hint_of(error))
        place = sandbox_dir(registry.paths, record.id)
        assert place.root.exists() != (trash.root / record.id).exists()
        if not place.root.exists():
            trash.restore(record.id)
        assert is_whole(place)
        if not fault.struck:
            assert "`quicksand-tui rm --now box` removes it for good: that takes none" in hints
            return
    raise AssertionError("it never succeeded")


# For good


def test_emptying_removes_what_was_named(registry: Registry, trash: SandboxTrash) -> None:
    one, other = filled(registry, "one"), filled(registry, "other")
    trash.put(one.id)
    trash.put(other.id)
    assert [gone.id for gone in trash.empty([one.id, "nobody"])] == [one.id]
    assert [found.id for found in trash.list()] == [other.id]
    assert left(registry.paths.sandboxes) == set()


def test_after_a_week_it_is_swept(registry: Registry, trash: SandboxTrash) -> None:
    old, young = filled(registry, "old"), filled(registry, "young")
    for record in (old, young):
        trash.put(record.id)
    make_overdue(trash.root / old.id)
    registry.reap()
    assert [found.id for found in trash.list()] == [young.id]
    assert registry.expired == ("old",)
    assert registry.strangers() == {}


def test_a_clock_that_is_ahead_for_one_command_empties_no_trash(
    registry: Registry, trash: SandboxTrash
) -> None:
    record = filled(registry)
    trash.put(record.id)
    now, day = time.time(), 86400.0
    assert trash.expire(now + 8 * day) == []
    # The clock is right again: what was found then is forgotten, and found anew.
    for passed in (0.1, 1, 6.9, 7.1, 8.0):
        assert trash.expire(now + passed * day) == [], passed
    assert [gone.id for gone in trash.expire(now + 8.2 * day)] == [record.id]
    assert trash.expire(now + 9 * day) == []


def test_what_was_due_and_brought_back_is_not_due_when_it_is_removed_again(
    registry: Registry, trash: SandboxTrash
) -> None:
    record = filled(registry)
    trash.put(record.id)
    now, day = time.time(), 86400.0
    assert trash.expire(now + 8 * day) == []
    trash.restore(record.id)
    assert trash.expire(now + 8.1 * day) == []
    trash.put(record.id)
    # A clock that is ahead again, at the first command after a week without one.
    assert trash.expire(now + 16 * day) == []


def test_a_clock_that_was_behind_makes_nothing_older_than_its_files(
    registry: Registry, trash: SandboxTrash
) -> None:
    record = filled(registry)
    trash.put(record.id)
    about = trash.root / record.id / "trash.json"
    write_json(about, {**read_json(about), "removed": 1.0})
    now, day = time.time(), 86400.0
    for passed in (0, 2, 6):
        assert trash.expire(now + passed * day) == []
    assert trash.expire(now + 7.5 * day) == []
    assert [gone.id for gone in trash.expire(now + 9 * day)] == [record.id]


@pytest.mark.parametrize("text", ["{", "[]", '{"ID": "x"}', '{"ID": NaN}', '{"ID": 1e400}'])
def test_a_note_of_what_is_due_that_cannot_be_read_deletes_nothing(
    registry: Registry, trash: SandboxTrash, text: str
) -> None:
    record = filled(registry)
    trash.put(record.id)
    (trash.root / NOTE).write_text(text.replace("ID", record.id))
    now = time.time() + 8 * 86400
    assert trash.expire(now) == []
    assert [gone.id for gone in trash.expire(now + CONFIRMED_S)] == [record.id]


def test_what_cannot_be_noted_is_not_deleted(
    registry: Registry, trash: SandboxTrash, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = filled(registry)
    trash.put(record.id)

    def full(*_: object, **__: object) -> None:
        raise DiskSpaceError("no space left")

    monkeypatch.setattr(ageing, "write_json", full)
    for days in (8, 10, 100):
        assert trash.expire(time.time() + days * 86400) == []
    assert [found.id for found in trash.list()] == [record.id]


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        json.dumps({"id": "x" * 12, "name": "box", "removed": 0, "why": "", "instant": ""}),
        '{"id": "ID", "name": "box", "removed": NaN, "why": "", "instant": ""}',
        '{"id": "ID", "name": "box", "removed": 1e400, "why": "", "instant": ""}',
        '{"id": "ID", "name": "../x", "removed": -Infinity, "why": 1, "instant": []}',
    ],
)
def test_what_is_not_dated_is_never_swept(
    registry: Registry, trash: SandboxTrash, text: str
) -> None:
    record = filled(registry)
    trash.put(record.id)
    (trash.root / record.id / "trash.json").write_text(text.replace("ID", record.id))
    for weeks in (100, 101):
        trash.expire(time.time() + weeks * TRASH_KEPT_S)
    (found,) = trash.list()
    assert found.name == "box"
    assert trash.restore(record.id).id == record.id


def test_what_is_not_ours_is_neither_listed_nor_swept(
    registry: Registry, trash: SandboxTrash, tmp_path: Path
) -> None:
    registry.paths.sandboxes.mkdir(parents=True)
    trash.root.mkdir(mode=0o700)
    (trash.root / "thesis").mkdir()
    foreign = tmp_path / new_id()
    foreign.mkdir()
    (trash.root / new_id()).symlink_to(foreign)
    assert trash.list() == []
    for weeks in (100, 101):
        trash.expire(time.time() + weeks * TRASH_KEPT_S)
    assert foreign.exists()
    assert (trash.root / "thesis").exists()


def test_a_trash_that_is_a_link_is_not_used(
    registry: Registry, trash: SandboxTrash, tmp_path: Path
) -> None:
    record = filled(registry)
    trash.put(record.id)
    shutil.move(trash.root, tmp_path / "elsewhere")
    trash.root.symlink_to(tmp_path / "elsewhere")
    assert trash.list() == []
    for weeks in (100, 101):
        trash.expire(time.time() + weeks * TRASH_KEPT_S)
    assert is_whole(SandboxDir(tmp_path / "elsewhere" / record.id))


# kill -9


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    # kill -9 loses nothing that the system knows.
    monkeypatch.setattr(os, "fsync", lambda _: None)


def where(registry: Registry, id_: str) -> str:
    """In which place it is, whole; it is in one only."""
    there = sandbox_dir(registry.paths, id_)
    away = SandboxDir(SandboxTrash(registry).root / id_)
    assert there.root.exists() != away.root.exists()
    assert is_whole(there if there.root.exists() else away)
    return "here" if there.root.exists() else "trash"


@pytest.mark.usefixtures("unsynced")
def test_killed_on_the_way_there(registry: Registry, trash: SandboxTrash) -> None:
    record = filled(registry)
    seen = set()

    def reset() -> None:
        if (trash.root / record.id).exists():
            trash.restore(record.id)

    def look() -> None:
        seen.add(where(registry, record.id))
        assert names(registry) == (["box"] if where(registry, record.id) == "here" else [])
        registry.reap()
        where(registry, record.id)

    root = registry.paths.sandboxes
    assert kill_at_each(root, lambda: trash.put(record.id), reset, look) > 5
    assert seen == {"here", "trash"}


@pytest.mark.usefixtures("unsynced")
@pytest.mark.parametrize("new_name", [None, "other"])
def test_killed_on_the_way_back(
    registry: Registry, trash: SandboxTrash, new_name: str | None
) -> None:
    record = filled(registry)
    seen = set()

    def reset() -> None:
        if not (trash.root / record.id).exists():
            trash.put(record.id)

    def look() -> None:
        seen.add(where(registry, record.id))
        registry.reap()
        if where(registry, record.id) == "here":
            assert names(registry) == [new_name or "box"]

    def restore() -> None:
        trash.restore(record.id, new_name)

    assert kill_at_each(registry.paths.sandboxes, restore, reset, look) > 5
    assert seen == {"here", "trash"}


@pytest.mark.usefixtures("unsynced")
def test_killed_while_it_goes_for_good(registry: Registry, trash: SandboxTrash) -> None:
    record = filled(registry)
    trash.put(record.id)
    aside = registry.paths.data / "aside"
    shutil.copytree(trash.root / record.id, aside, symlinks=True)
    seen = set()

    def reset() -> None:
        shutil.rmtree(trash.root / record.id, ignore_errors=True)
        shutil.copytree(aside, trash.root / record.id, symlinks=True)

    def look() -> None:
        # A whole one or none: what is half removed cannot be brought back.
        listed = [found.id for found in trash.list()]
        seen.add(bool(listed))
        assert not listed or is_whole(SandboxDir(trash.root / record.id))
        registry.reap()
        assert left(registry.paths.sandboxes) == set()

    assert kill_at_each(registry.paths.sandboxes, lambda: trash.empty([record.id]), reset, look) > 5
    assert seen == {True, False}
