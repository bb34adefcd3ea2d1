"""Whether a save was made here: known by a mark outside of it that nobody else can make."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base.errors import HistoryError
from quicksand.base.paths import Paths
from quicksand.records.layout import SandboxDir
from quicksand.saves.census import remove_save, restore_save
from quicksand.saves.finding import remember, store_at
from quicksand.saves.ownership import (
    IMPORTED,
    MARKS_KEPT,
    is_own,
    mark_imported,
    mark_made,
    was_made_at,
)
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Save
from quicksand.saves.store import SaveStore
from quicksand.snapshots.layers import read_seal, seal_layers
from quicksand.snapshots.pages import verify

from tests.unit.saves.making import make_save


def marks(places: Paths) -> list[Path]:
    return list((places.data / "made").glob("*"))


def make_own(store: SaveStore, name: str, places: Paths, *contents: bytes) -> Save:
    remember(store.root, places)
    save = make_save(store, name, *(contents or (b"1",)), replace=True)
    mark_made(save.root, save.root, places)
    return save


@pytest.fixture
def store(tmp_path: Path, places: Paths) -> SaveStore:
    store = store_at(tmp_path / "work")
    store.root.mkdir()
    remember(store.root, places)
    return store_at(store.root, places)


def test_only_what_was_marked_is_ones_own(places: Paths, store: SaveStore) -> None:
    mine, theirs = make_own(store, "mine", places), make_save(store, "theirs", b"1")
    assert is_own(mine.root, places)
    assert not is_own(theirs.root, places)
    assert (was_made_at(mine.root, places), was_made_at(theirs.root, places)) == (True, False)
    assert not is_own(store.root / "nothing", places)


def test_the_users_own_saves_are_but_for_imported_ones(places: Paths) -> None:
    own = SaveStore(places.saves)
    save = make_save(own, "env", b"1")
    assert is_own(save.root, places)
    mark_imported(save.root)
    assert not is_own(save.root, places)
    assert marks(places) == []


def test_a_link_among_the_users_own_is_what_it_leads_to(places: Paths, store: SaveStore) -> None:
    theirs = make_save(store, "theirs", b"1")
    places.saves.mkdir(parents=True)
    (places.saves / "env").symlink_to(theirs.root)
    assert not is_own(places.saves / "env", places)


def change_manifest(root: Path) -> None:
    text = (root / MANIFEST).read_text()
    (root / MANIFEST).write_text(text.replace("mounts_only", "full"))


def change_layer(root: Path) -> None:
    layer = root / OVERLAYS / "0.qcow2"
    before = layer.stat()
    with layer.open("r+b") as file:
        file.seek(before.st_size - 1)
        file.write(b"x")
    os.utime(layer, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def put_another_layer(root: Path) -> None:
    """As git does it, with the times of the old one."""
    layer = root / OVERLAYS / "0.qcow2"
    shutil.copy2(layer, root / "new")
    (root / "new").replace(layer)


def add_layer(root: Path) -> None:
    shutil.copy2(root / OVERLAYS / "0.qcow2", root / OVERLAYS / "1.qcow2")


def remove_manifest(root: Path) -> None:
    (root / MANIFEST).unlink()


@pytest.mark.parametrize(
    "change", [change_manifest, change_layer, put_another_layer, add_layer, remove_manifest]
)
def test_what_was_changed_afterwards_is_not_ones_own(
    places: Paths, store: SaveStore, change: Callable[[Path], None]
) -> None:
    save = make_own(store, "env", places)
    change(save.root)
    assert not is_own(save.root, places)


def test_a_save_stays_ones_own_when_a_checkpoint_seals_the_layers_that_it_shares(
    places: Paths, store: SaveStore, tmp_path: Path
) -> None:
    save = make_own(store, "mine", places)
    layer = next((save.root / OVERLAYS).iterdir())
    place = SandboxDir(tmp_path / "box")
    place.layers.mkdir(parents=True)
    place.layer("00000001").hardlink_to(layer)
    seal_layers(place, ["00000001"])
    assert is_own(save.root, places)
    seal = read_seal(place, "00000001")
    verify(place.layer("00000001"), seal)
    with layer.open("r+b") as file:
        file.write(b"?")
    with pytest.raises(HistoryError, match="damaged"):
        verify(layer, seal)


def test_a_copy_elsewhere_is_not_ones_own(places: Paths, store: SaveStore, tmp_path: Path) -> None:
    save = make_own(store, "env", places)
    copied = shutil.copytree(save.root, tmp_path / "copied")
    assert not is_own(copied, places)
    # The mark that a repository might bring within it counts for nothing.
    shutil.copytree(places.data / "made", copied / "made")
    shutil.copytree(places.data / "made", tmp_path / ".quicksand" / "made")
    assert not is_own(copied, places)
    moved = store.root.rename(tmp_path / "moved")
    assert not is_own(moved / "env", places)


def test_what_comes_back_from_the_trash_is_ones_own_still(places: Paths, store: SaveStore) -> None:
    make_own(store, "env", places, b"replaced")
    make_own(store, "env", places, b"removed")
    remove_save(store.root / "env", places)
    ids = [trashed.id for trashed in store.trash()]
    assert len(ids) == 2
    for id_, name in zip(ids, ("other", "env"), strict=True):
        assert is_own(restore_save(id_, places, new_name=name).root, places)


def test_what_was_not_ones_own_is_not_when_it_comes_back(places: Paths, store: SaveStore) -> None:
    make_save(store, "env", b"1")
    remove_save(store.root / "env", places)
    assert not is_own(restore_save("env", places).root, places)
    own = SaveStore(places.saves)
    mark_imported(make_save(own, "imported", b"1").root)
    remove_save("imported", places)
    restored = restore_save("imported", places, new_name="other")
    assert (restored.root / IMPORTED).exists()
    assert not is_own(restored.root, places)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"files": null}', '{"files": [[]]}'])
def test_a_mark_that_cannot_be_read_marks_nothing(
    places: Paths, store: SaveStore, content: str
) -> None:
    save = make_own(store, "env", places)
    (mark,) = marks(places)
    mark.write_text(content)
    assert not is_own(save.root, places)


def test_marks_of_one_place_do_not_pile_up(places: Paths, store: SaveStore) -> None:
    make_own(store, "other", places)
    for number in range(MARKS_KEPT + 5):
        save = make_own(store, "env", places, str(number).encode())
    assert len(marks(places)) == MARKS_KEPT + 1
    assert is_own(save.root, places)
