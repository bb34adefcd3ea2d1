"""What is known of all saves: sizes, bases, descent; and which workspaces have any."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.ageing import CONFIRMED_S
from quicksand.base.errors import SaveError, SaveNotFoundError
from quicksand.base.files import try_lock, write_json
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.sandboxes import Record, SaveSource
from quicksand.saves.census import (
    Census,
    Removed,
    SaveInfo,
    base_state,
    choose_old,
    expire_trash,
    freed_by,
    list_trash,
    remove_each,
    remove_save,
)
from quicksand.saves.finding import known_stores, workspaces_dir
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Base
from quicksand.saves.store import SaveStore
from quicksand.things.save import BaseState

from tests.unit.aged import age
from tests.unit.cli.run_cli import make_stopped
from tests.unit.saves.making import make_published, make_save, publish_image, workspace_of

CLUSTER = 65536


@pytest.fixture
def store(places: Paths) -> SaveStore:
    # Images of the test's own.
    (places.data / "images").unlink(missing_ok=True)
    return SaveStore(places.saves)


def info(places: Paths, name: str, cwd: Path | None = None) -> SaveInfo:
    return next(found for found in Census(places, cwd).list() if found.name == name)


def test_what_two_saves_share_is_told_and_is_not_counted_as_freed(
    places: Paths, store: SaveStore
) -> None:
    first = make_save(store, "first", os.urandom(CLUSTER))
    alone = info(places, "first")
    assert alone.shared == 0
    second = make_save(store, "second", os.urandom(CLUSTER), over=first)
    for name in ("first", "second"):
        found = info(places, name)
        assert found.shared == (first.root / OVERLAYS / "0.qcow2").stat().st_blocks * 512
        assert found.own == freed_by([found.save.root])
    both = freed_by([first.root, second.root])
    assert (
        both == sum(info(places, n).own for n in ("first", "second")) + info(places, "first").shared
    )
    # A sandbox that was resumed from the first has links of its own.
    os.link(second.root / OVERLAYS / "1.qcow2", places.data / "layer")
    assert freed_by([first.root, second.root]) < both


def test_what_is_freed_is_what_was_counted(places: Paths, store: SaveStore) -> None:
    first = make_save(store, "first", os.urandom(CLUSTER))
    make_save(store, "second", os.urandom(CLUSTER), over=first)
    before, promised = Footprint(store.root).size, info(places, "first").own
    store.delete("first")
    assert before - Footprint(store.root).size == promised
    left = Footprint(store.root).size
    promised = freed_by([store.root / "second"])
    store.delete("second")
    assert left - Footprint(store.root).size == promised


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(links=st.lists(st.sets(st.integers(0, 4), min_size=1), max_size=6))
def test_every_file_is_counted_once_and_belongs_to_those_with_all_its_links(
    tmp_path: Path, links: list[set[int]]
) -> None:
    root = tmp_path / "files"
    shutil.rmtree(root, ignore_errors=True)
    for directory in range(5):
        (root / str(directory)).mkdir(parents=True)
    for number, places in enumerate(links):
        made = root / str(min(places)) / f"f{number}"
        made.write_bytes(bytes(4096 * (number + 1)))
        for other in places - {min(places)}:
            os.link(made, root / str(other) / f"f{number}")
    sized = [(4096 * (number + 1), where) for number, where in enumerate(links)]
    parts = [Footprint(root / str(directory)) for directory in range(5)]
    for directory, part in enumerate(parts):
        others = [size for size, where in sized if directory in where and len(where) > 1]
        assert part.shared == sum(others)
    whole = Footprint.together(parts)
    assert (whole.shared, whole.size) == (0, Footprint(*root.iterdir()).size)
    split = sum(size for size, where in sized if len(where) > 1)
    assert whole.size - sum(part.own for part in parts) == split


def test_a_directory_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(bytes(4096))
    once = Footprint(tmp_path / "a")
    twice = Footprint(tmp_path / "a", tmp_path / "a")
    assert (once.size, once.own) == (twice.size, twice.own)


def test_shared_files_tell_what_several_roots_free_together(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "own").write_bytes(bytes(4096))
    (tmp_path / "a" / "layer").write_bytes(bytes(8192))
    os.link(tmp_path / "a" / "layer", tmp_path / "b" / "layer")
    ((allocated, links, seen),) = Footprint(tmp_path / "a").shared_files.values()
    assert (allocated, links, seen) == (Footprint(tmp_path / "a").shared, 2, 1)
    assert Footprint(tmp_path / "a", tmp_path / "b").shared_files == {}
    assert Footprint(tmp_path / "c").shared_files == {}


def test_the_size_of_what_is_not_there_is_nothing(tmp_path: Path) -> None:
    assert Footprint(tmp_path / "nothing").size == 0
    loop = tmp_path / "loop"
    loop.mkdir()
    (loop / "up").symlink_to(tmp_path)
    assert Footprint(loop).size < 64 * 1024


def test_children_and_sandboxes_are_named(places: Paths, store: SaveStore) -> None:
    first = make_save(store, "first", b"1")
    make_save(store, "second", b"2", over=first)
    make_save(store, "third", b"3", over=first)
    record = make_stopped(places, "box")
    change_source(places, record, path="/elsewhere", name="first", id=first.require().id)
    found = info(places, "first")
    assert (found.children, found.sandboxes) == (("second", "third"), ("box",))
    assert info(places, "second").parent == info(places, "third").parent
    assert info(places, "second").sandboxes == ()


def change_source(places: Paths, record: Record, **source: str) -> None:
    began = replace(record, source=SaveSource(digest="", **source))  # type: ignore[arg-type]
    write_json(sandbox_dir(places, record.id).record, began.to_json())


def test_a_sandbox_of_a_published_save_is_known_by_its_path(
    places: Paths, store: SaveStore
) -> None:
    root = make_published(store.root / "env", b"1")
    record = make_stopped(places, "box")
    change_source(places, record, path=str(root), name="env", id="")
    assert info(places, "env").sandboxes == ("box",)


def test_bases_are_known_by_digest(places: Paths, store: SaveStore) -> None:
    old, new = publish_image(places, "1"), publish_image(places, "2")
    for name, base in {
        "old": Base(name="debian", digest=old.digest),
        "new": Base(name="debian", digest=new.digest),
        "other": Base(name="debian", version="12", digest="0" * 64),
        "missing": Base(name="nowhere", digest="1" * 64),
        "unsaid": Base(name="debian"),
        "nothing": Base(name="nowhere"),
    }.items():
        make_save(store, name, b"1", base=base)
    make_save(store, "broken", b"1")
    (store.root / "broken" / MANIFEST).write_text("{")
    states = {found.name: found.base_state for found in Census(places).list()}
    assert states == {
        "old": BaseState.HERE,
        "new": BaseState.HERE,
        "other": BaseState.OTHER,
        "missing": BaseState.MISSING,
        "unsaid": BaseState.HERE,
        "nothing": BaseState.MISSING,
        "broken": BaseState.UNKNOWN,
    }
    assert "'debian', version 12, digest 000000000000" in info(places, "other").problems[0]
    assert info(places, "new").problems == ()
    assert MANIFEST in info(places, "broken").problems[0]
    shutil.rmtree(old.root)
    assert base_state(Base(name="debian", digest=old.digest), places, store.root) is BaseState.OTHER


def test_what_a_published_save_lies_on_is_known(places: Paths, store: SaveStore) -> None:
    publish_image(places)
    make_published(store.root / "low", b"1")
    make_published(store.root / "top", b"2", image="low")
    low, top = info(places, "low"), info(places, "top")
    assert (low.above, top.above) == (("top",), ())
    assert (low.base_state, top.base_state) == (BaseState.HERE, BaseState.HERE)
    with pytest.raises(SaveError, match="top is based on it"):
        remove_save("low", places)
    assert {found.name for found in choose_old(Census(places).list(), keep=0)} == {"top"}
    remove_save("top", places)
    remove_save("low", places)
    # One that has the name of its image lies on the image.
    make_published(store.root / "debian", b"3")
    assert (info(places, "debian").above, info(places, "debian").base_state) == ((), "here")


def test_of_many_that_are_removed_each_is_gone_or_says_why_not(
    places: Paths, store: SaveStore
) -> None:
    make_published(store.root / "low", b"1")
    make_published(store.root / "top", b"2", image="low")
    make_save(store, "env", b"3")
    record = make_stopped(places, "box")
    place = sandbox_dir(places, record.id)
    source = SaveSource(path="/x", name="env", id=store.find("env").require().id, digest="")
    write_json(place.record, replace(record, source=source, committed=False).to_json())
    wanted: list[str | Path] = ["low", "nowhere", "env", "top", store.root / "low"]
    lock = try_lock(place.lock)
    assert lock is not None
    try:
        low, missing, env, top, again = remove_each(wanted, places)
    finally:
        os.close(lock)
    assert "top is based on it" in str(low)
    assert isinstance(missing, SaveNotFoundError)
    assert "box is just starting from it" in str(env)
    # Once the one above it has gone it may go, too.
    assert isinstance(top, Removed) and isinstance(again, Removed)
    assert [trashed.save.name for trashed in store.trash()] == ["top", "low"]
    (gone,) = remove_each([store.root / "env"], places, now=True)
    assert isinstance(gone, Removed) and gone.trashed is None
    assert (store.list(), len(store.trash())) == ([], 2)


def test_a_sandbox_that_starts_needs_what_its_save_lies_on(places: Paths, store: SaveStore) -> None:
    low = make_published(store.root / "low", b"1")
    record = make_stopped(places, "box")
    source = SaveSource(path="/top", below=(str(low),), name="top", id="", digest="")
    place = sandbox_dir(places, record.id)
    write_json(place.record, replace(record, source=source, committed=False).to_json())
    lock = try_lock(place.lock)
    assert lock is not None
    try:
        with pytest.raises(SaveError, match="box is just starting"):
            remove_save("low", places)
    finally:
        os.close(lock)


def test_ages(places: Paths, store: SaveStore) -> None:
    make_save(store, "ours", b"1")
    make_published(store.root / "theirs", b"1")
    assert info(places, "ours").created == 1_700_000_000.0
    assert time.time() - info(places, "theirs").created < 60


# Workspaces


def test_saves_of_other_workspaces_are_known(places: Paths, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for cwd in (here, there):
        make_save(workspace_of(places, cwd), cwd.name, b"1")
    make_save(SaveStore(places.saves), "own", b"1")
    assert [found.name for found in Census(places, here).list()] == ["here", "own"]
    everywhere = Census(places, here).list(everywhere=True)
    assert [found.name for found in everywhere] == ["here", "own", "there"]
    assert len(list(workspaces_dir(places).iterdir())) == 2
    # One that has gone is forgotten in time.
    shutil.rmtree(there)
    roots = {store.root for store in known_stores(places, here)}
    assert roots == {here / ".quicksand" / "sandboxes", places.saves, here}
    make_save(workspace_of(places, tmp_path / "new"), "new", b"1")
    assert len(list(workspaces_dir(places).iterdir())) == 2


def test_that_workspaces_cannot_be_remembered_is_no_error(places: Paths, tmp_path: Path) -> None:
    workspaces_dir(places).write_text("in the way")
    store = workspace_of(places, tmp_path)
    assert known_stores(places, tmp_path)[0].root == store.root


# Trash


def test_trash_expires_after_a_week(places: Paths, store: SaveStore, tmp_path: Path) -> None:
    for name in ("old", "new"):
        make_save(store, name, b"1")
        entry = store.remove(name)
        if name == "old":
            age(entry.root)
    now = time.time()
    assert [found.save.name for found in list_trash([store])] == ["old", "new"]
    assert expire_trash([store], now) == [], "the clock may be wrong for this moment"
    now += CONFIRMED_S
    gone = expire_trash([store, SaveStore(tmp_path / "none")], now)
    assert [found.save.name for found in gone] == ["old"]
    assert [found.save.name for found in store.trash()] == ["new"]
    assert expire_trash([store], now) == []
    assert not (tmp_path / "none").exists()
