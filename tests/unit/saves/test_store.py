"""The store of saves: names, the trash, what is damaged."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.errors import ConfigError, SaveError, SaveNotFoundError
from quicksand.base.removal import HEADER, MARK, make_marked
from quicksand.records.trash import TRASH, TRASH_KEPT_S
from quicksand.saves import store as store_module
from quicksand.saves.census import expire_trash
from quicksand.saves.save_manifest import MANIFEST, NAME_MAX, OVERLAYS, Save, check_save_name
from quicksand.saves.save_places import READY
from quicksand.saves.store import SaveStore

from tests.unit.saves.making import fill_save, make_published, make_save


@pytest.fixture
def store(tmp_path: Path) -> SaveStore:
    return SaveStore(tmp_path / "sandboxes")


def note(save: Save | None) -> str:
    return "" if save is None else save.require().note


def names(store: SaveStore) -> set[str]:
    return {path.name for path in store.root.iterdir()}


def test_a_store_that_is_not_there_is_empty_and_is_not_made(store: SaveStore) -> None:
    assert store.list() == []
    assert store.trash() == []
    assert store.get("env") is None
    with pytest.raises(SaveNotFoundError):
        store.find("env")
    assert not store.root.exists()


def test_a_taken_name_is_refused_unless_it_is_to_be_replaced(store: SaveStore) -> None:
    make_save(store, "env", b"1", note="first")
    with pytest.raises(SaveError, match="already"):
        make_save(store, "env", b"2", note="second")
    assert note(store.get("env")) == "first"
    make_save(store, "env", b"3", note="third", replace=True)
    assert note(store.get("env")) == "third"
    assert [note(found.save) for found in store.trash()] == ["first"]
    assert names(store) == {"env", ".lock", ".trash"}


def test_what_was_removed_comes_back_once(store: SaveStore) -> None:
    made = make_save(store, "env", b"1")
    trashed = store.remove("env")
    assert store.list() == []
    assert (trashed.save.name, trashed.save.manifest) == ("env", made.manifest)
    with pytest.raises(SaveNotFoundError):
        store.remove("env")
    assert store.restore(trashed.id).manifest == made.manifest
    assert store.trash() == []
    with pytest.raises(SaveNotFoundError):
        store.restore(trashed.id)


def test_a_name_that_is_taken_meanwhile_is_not_replaced_by_what_comes_back(
    store: SaveStore,
) -> None:
    make_save(store, "env", b"1", note="first")
    trashed = store.remove("env")
    make_save(store, "env", b"2", note="second")
    with pytest.raises(SaveError, match="already"):
        store.restore(trashed.id)
    assert note(store.restore(trashed.id, "other")) == "first"
    assert note(store.get("env")) == "second"


def test_of_one_name_the_trash_keeps_all(store: SaveStore) -> None:
    for number in range(3):
        make_save(store, "env", b"1", note=str(number), replace=True)
    store.remove("env")
    assert [note(found.save) for found in store.trash()] == ["0", "1", "2"]
    store.empty_trash([store.trash()[1].id])
    assert [note(found.save) for found in store.trash()] == ["0", "2"]


def test_removing_for_good_leaves_nothing(store: SaveStore) -> None:
    make_save(store, "env", b"1")
    store.delete("env")
    assert names(store) == {".lock"}
    with pytest.raises(SaveNotFoundError):
        store.delete("env")


def test_layers_that_two_saves_share_outlive_either(store: SaveStore) -> None:
    first = make_save(store, "first", b"1")
    second = make_save(store, "second", b"2", over=first)
    store.delete("first")
    assert store.find("second").error == ""
    assert second.require().layers == store.find("second").require().layers


def test_a_save_that_was_not_published_is_gone(store: SaveStore) -> None:
    with store.making() as made:
        fill_save(made, b"1")
    with pytest.raises(RuntimeError), store.making() as made:
        raise RuntimeError
    assert names(store) == {".lock"}


def test_one_in_the_making_is_left_alone_by_others(store: SaveStore) -> None:
    with store.making() as made:
        make_save(store, "other", b"2")
        store.recover()
        fill_save(made, b"1")
        store.publish(made, "env", replace=False)
    assert [save.name for save in store.list()] == ["env", "other"]


def test_where_two_directories_cannot_change_places_saves_are_replaced_all_the_same(
    store: SaveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "exchange", lambda *_: False)
    test_a_taken_name_is_refused_unless_it_is_to_be_replaced(store)


# Names

BAD_NAMES = [
    "",
    " ",
    ".",
    "..",
    ".hidden",
    "a/b",
    "/",
    "a\0b",
    "a\nb",
    "\x1b[2J",
    "\udc80",
    "x" * 201,
]
GOOD_NAMES = ["a", "my env", "my-env.v2", "naïve", "日本", "-rf", "x" * NAME_MAX, "é" * 100]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_bad_name_is_refused_before_anything_is_made(store: SaveStore, name: str) -> None:
    with pytest.raises(ConfigError):
        make_save(store, name, b"1")
    assert store.get(name) is None
    with pytest.raises(SaveNotFoundError):
        store.remove(name)
    assert names(store) == {".lock"}
    assert {path.name for path in store.root.parent.iterdir()} == {store.root.name}


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_every_other_name_goes_all_the_way(store: SaveStore, name: str) -> None:
    make_save(store, name, b"1", note="first")
    make_save(store, name, b"2", note="second", replace=True)
    store.remove(name)
    for trashed in store.trash():
        assert trashed.save.name == name
    store.restore(store.trash()[-1].id)
    assert note(store.find(name)) == "second"


@given(name=st.text(max_size=250))
def test_a_name_that_is_accepted_is_one_entry_of_a_directory(name: str) -> None:
    try:
        accepted = check_save_name(name)
    except ConfigError:
        return
    path = Path("/saves") / accepted
    assert path.parent == Path("/saves")
    assert path.name == name
    assert len(os.fsencode(name)) <= NAME_MAX


# What is damaged


def test_a_save_that_cannot_be_used_is_listed_and_can_be_removed(store: SaveStore) -> None:
    make_save(store, "good", b"1")
    for damage in ("manifest", "missing", "short", "linked", "empty"):
        made = make_save(store, damage, b"1")
        overlay = made.root / OVERLAYS / "0.qcow2"
        if damage == "manifest":
            (made.root / MANIFEST).write_text("{")
        elif damage == "missing":
            overlay.unlink()
        elif damage == "short":
            os.truncate(overlay, 1000)
        elif damage == "linked":
            overlay.rename(store.root.parent / "elsewhere")
            overlay.symlink_to(store.root.parent / "elsewhere")
        else:
            shutil.rmtree(made.root)
            made.root.mkdir()
    found = {save.name: save.error for save in store.list()}
    assert found.pop("good") == ""
    assert len(found) == 5
    for name, error in found.items():
        assert str(store.root / name) in error
        store.remove(name)
    assert len(store.trash()) == 5
    assert [save.name for save in store.list()] == ["good"]


def test_what_is_not_proven_a_save_is_neither_moved_nor_deleted(store: SaveStore) -> None:
    """Not even if a trash of an earlier version has it already, in a directory of its own."""
    for name in ("files", "manifest", "beside", "overlays", "linked"):
        made = make_save(store, name, b"1")
        (made.root / MARK).unlink()
        if name == "files":
            (made.root / MANIFEST).unlink()
        elif name == "manifest":
            (made.root / MANIFEST).write_text('{"version": 6}')
        elif name == "beside":
            (made.root / "thesis.txt").write_text("years of work")
        elif name == "overlays":
            (made.root / OVERLAYS / "thesis.txt").write_text("years of work")
        else:
            made.root.rename(store.root.parent / "theirs")
            made.root.symlink_to(store.root.parent / "theirs")
    before = {save.name: sorted(save.root.rglob("*")) for save in store.list()}
    assert len(before) == 5
    for name in before:
        for remove in (store.remove, store.delete):
            with pytest.raises(SaveError, match="is left alone, since"):
                remove(name)
    assert {save.name: sorted(save.root.rglob("*")) for save in store.list()} == before
    assert store.trash() == []

    copied = make_save(store, "copied", b"1")
    (copied.root / MARK).unlink()
    trashed = store.remove("copied")
    (trashed.root / "save" / "thesis.txt").write_text("years of work")
    assert expire_trash([store], trashed.removed + 3 * TRASH_KEPT_S) == []
    with pytest.raises(SaveError, match="is left in the trash: it is no save"):
        store.empty_trash([trashed.id])
    assert (trashed.root / "save" / "thesis.txt").exists()


def test_what_is_no_save_is_not_listed(store: SaveStore) -> None:
    make_save(store, "env", b"1")
    (store.root / "README").write_text("a file")
    (store.root / "nowhere").symlink_to("nothing")
    assert [save.name for save in store.list()] == ["env"]


def test_a_damaged_record_of_the_trash_does_not_hide_what_is_in_it(store: SaveStore) -> None:
    make_save(store, "env", b"1")
    entry = store.remove("env")
    for content in ("{", '{"name": "../../x", "removed": 1}', '{"name": "env", "removed": NaN}'):
        (entry.root / "trash.json").write_text(content)
        (found,) = store.trash()
        assert (found.id, found.save.error) == (entry.id, "")
        assert time.time() - found.removed < 60
    assert store.restore(entry.id).name == entry.id


def test_a_save_that_brings_a_mark_is_removed_where_it_is(store: SaveStore, tmp_path: Path) -> None:
    """Whatever that says: it was copied here from elsewhere."""
    for number, said in enumerate(("../../out", "0123456789ab")):
        save = make_save(store, f"copied-{number}", b"1")
        (save.root / MARK).write_text(f"{HEADER}{said}\n")
        store.delete(save.name)
        assert store.get(save.name) is None
    assert names(store) == {".lock"}
    assert {path.name for path in store.root.parent.iterdir()} == {store.root.name}


def test_a_whole_save_whose_name_was_lost_on_its_way_goes_to_the_trash(store: SaveStore) -> None:
    make_save(store, "env", b"1", note="kept")
    ready = make_marked(store.root / f"{READY}{0xABC:012x}")
    (store.root / "env").rename(ready / "save")
    (ready / "ready.json").write_text("{")
    assert store.get("env") is None
    (found,) = store.trash()
    assert (found.save.name, note(found.save)) == ("recovered-000000000abc", "kept")
    assert names(store) == {".lock", TRASH}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.binary(max_size=200)
    | st.builds(
        lambda v: json.dumps(v).encode(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.floats(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["version", "config", "arch", "id", "layers", "base", "image", "created"]
                    ),
                    inner,
                    max_size=6,
                )
            ),
        ),
    )
)
def test_any_manifest_is_read_or_refused(tmp_path: Path, content: bytes) -> None:
    store = SaveStore(tmp_path / "any")
    root = store.root / "env"
    if not root.exists():
        make_published(root, b"1")
    (root / MANIFEST).write_bytes(content)
    (found,) = store.list()
    assert (found.manifest is None) == (found.error != "")
