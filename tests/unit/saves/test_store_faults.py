"""A full disk at every write of a store of saves, and several processes at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base.errors import DiskSpaceError, QuicksandError, SaveError, SaveNotFoundError
from quicksand.base.paths import Paths
from quicksand.base.removal import make_marked
from quicksand.records.trash import TRASH
from quicksand.saves import store as store_module
from quicksand.saves.ownership import is_own
from quicksand.saves.save_manifest import Save, identity_of
from quicksand.saves.save_places import HOUSE, READY
from quicksand.saves.saving import _publish
from quicksand.saves.store import SaveStore

from tests.faults import Fault, fault
from tests.unit.saves.making import fill_save, make_save

__all__ = ["fault"]

DEADLINE_S = 60.0
PROCESSES, ROUNDS = 4, 25


@pytest.fixture(params=["alone", "shared"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> SaveStore:
    return SaveStore(tmp_path / "sandboxes", is_shared=request.param == "shared")


def note(save: Save | None) -> str:
    return "" if save is None else save.require().note


def names(store: SaveStore) -> set[str]:
    return {path.name for root in (store.root, store.house) for path in root.iterdir()} - {HOUSE}


# A full disk


def each_failure(
    fault: Fault, root: Path, attempt: Callable[[], object], look: Callable[[bool], None]
) -> int:
    """Let every write of ``attempt`` fail in turn until none is left to fail; ``look`` is told
    whether the attempt failed."""
    for number in range(1, 200):
        failed = False
        with fault.at(number, root, errno.ENOSPC):
            try:
                attempt()
            except (DiskSpaceError, OSError):  # the latter by those who put files into it
                failed = True
        look(failed)
        if not fault.struck:
            assert not failed
            return number - 1
    raise AssertionError("it never succeeded")


@pytest.mark.parametrize("exchanged", [True, False])
def test_a_full_disk_while_saving_over_a_save(
    store: SaveStore, fault: Fault, monkeypatch: pytest.MonkeyPatch, exchanged: bool
) -> None:
    if not exchanged:
        monkeypatch.setattr(store_module, "exchange", lambda *_: False)
    numbers = iter(range(1000))
    make_save(store, "env", b"1", note="-1")
    before = ["-1"]

    def attempt() -> None:
        make_save(store, "env", b"2", note=str(next(numbers)), replace=True)

    def look(failed: bool) -> None:
        now = note(store.get("env"))
        if failed and now == before[-1]:
            assert store.get("env") is not None
        else:
            before.append(now)
        store.recover()
        assert [note(found.save) for found in store.trash()] == before[:-1]
        assert names(store) <= {"env", ".lock", TRASH}

    assert each_failure(fault, store.root, attempt, look) > 10
    assert len(before) > 1


def test_a_full_disk_while_it_is_noted_who_saves(
    store: SaveStore, fault: Fault, tmp_path: Path
) -> None:
    own = Paths(runtime=tmp_path / "run", data=tmp_path / "data", cache=tmp_path / "cache")
    contents = [b"0"]

    def attempt() -> None:
        with store.making() as made:
            manifest = fill_save(made, contents[-1])
            _publish(own, store, made, "env", manifest, replace_it=True)

    def look(failed: bool) -> None:
        assert is_own(store.root / "env", own)
        assert store.find("env").error == ""
        store.recover()
        assert is_own(store.root / "env", own)
        assert names(store) <= {"env", ".lock", TRASH}
        assert all(not path.name.startswith(".") for path in (own.data / "made").iterdir())
        contents.append(str(len(contents)).encode())

    attempt()
    assert each_failure(fault, tmp_path, attempt, look) > 10


def test_a_full_disk_while_removing_and_bringing_back(store: SaveStore, fault: Fault) -> None:
    make_save(store, "env", b"1", note="kept")

    def look(_: bool) -> None:
        found = [note(store.get("env")), *(note(trashed.save) for trashed in store.trash())]
        assert sorted(filter(None, found)) == ["kept"]
        if store.get("env") is None:
            store.restore(store.trash()[0].id)
        assert names(store) <= {"env", ".lock", TRASH}
        assert not store.trash()

    assert each_failure(fault, store.root, lambda: store.remove("env"), look) > 3

    def restore() -> None:
        store.restore(store.trash()[0].id)

    def look_back(failed: bool) -> None:
        look(failed)
        store.remove("env")

    store.remove("env")
    assert each_failure(fault, store.root, restore, look_back) > 1


def test_removing_for_good_needs_no_space(
    store: SaveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("env", "replaced"):
        make_save(store, name, b"1")
    # Of somebody who died when they had changed places; it is to go to the trash.
    ready = make_marked(store.house / f"{READY}{0:012x}")
    (store.root / "replaced").rename(ready / "save")
    (ready / "ready.json").write_text('{"name": "replaced", "inode": 0}')

    def is_full(path: Path, *_: object) -> None:
        raise DiskSpaceError(f"no space left for {path}")

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "write_json", is_full)
        patch.setattr(store_module, "make_marked", is_full)
        with pytest.raises(DiskSpaceError):
            store.remove("env")
        assert store.find("env").error == ""
        store.delete("env")
    store.recover()
    assert [found.save.name for found in store.trash()] == ["replaced"]
    assert names(store) == {".lock", TRASH}


# Several processes


def disturb(root: Path, is_shared: bool, seed: int) -> None:
    """Save over one name, remove it, bring it back, look at it, all at once with others."""
    store, draw = SaveStore(root, is_shared=is_shared), random.Random(seed)
    for number in range(ROUNDS):
        try:
            match draw.randrange(5):
                case 0 | 1:
                    make_save(store, "env", os.urandom(8 * draw.randrange(1, 9)), replace=True)
                case 2:
                    store.remove("env")
                case 3:
                    store.restore(draw.choice(store.trash() or [store.remove("env")]).id)
                case 4:
                    store.empty_trash([found.id for found in store.trash()[:2]])
        except (SaveNotFoundError, SaveError) as error:
            assert "another program" not in str(error), number
        for save in store.list():
            assert save.error == "", save.error


def test_several_processes_at_one_name(store: SaveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # They would wait for a busy disk, each for all others.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    context = multiprocessing.get_context("fork")
    make_save(store, "env", b"1")
    workers = [
        context.Process(target=disturb, args=(store.root, store.is_shared, seed), daemon=True)
        for seed in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while any(worker.is_alive() for worker in workers):
            assert time.monotonic() < deadline, "they wait for each other"
            save = store.get("env")
            # It may be removed while it is looked at; it is never half of one.
            assert save is None or save.error == "" or identity_of(save.root) != save.identity, (
                save.error
            )
    finally:
        for worker in workers:
            worker.kill()
            worker.join()
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    store.recover()
    assert names(store) <= {"env", ".lock", TRASH}


def test_a_store_that_another_program_holds_is_refused_in_time(
    store: SaveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOCK_WAIT_S", 0.05)
    make_save(store, "env", b"1")
    with store._locked():
        with pytest.raises(SaveError, match="another program"):
            store.remove("env")
        assert store.find("env").error == ""


def test_a_directory_that_cannot_be_written_says_so(store: SaveStore) -> None:
    make_save(store, "env", b"1")
    store.root.chmod(0o500)
    try:
        assert store.find("env").error == ""
        if os.geteuid() != 0:
            with pytest.raises(QuicksandError):
                store.remove("env")
    finally:
        store.root.chmod(0o700)
