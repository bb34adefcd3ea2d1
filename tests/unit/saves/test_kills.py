"""kill -9 at every file operation: the name leads to the old save or the new one, and after
`recover` nothing is left of the attempt."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.base.removal import make_marked
from quicksand.saves import store as store_module
from quicksand.saves.ownership import fits, is_own
from quicksand.saves.proof import GONE
from quicksand.saves.save_manifest import OVERLAYS, Save
from quicksand.saves.save_places import HOUSE, READY
from quicksand.saves.saving import _publish
from quicksand.saves.store import MAKING, SaveStore

from tests.kills import kill_at_each
from tests.unit.saves.making import fill_save, make_save

NAME = "env"


@pytest.fixture(params=["exchanged", pytest.param("moved", marks=pytest.mark.soak), "shared"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> SaveStore:
    if request.param == "moved":
        monkeypatch.setattr(store_module, "exchange", lambda *_: False)
    # kill -9 loses nothing that the system knows; without it the tests take a quarter of the time.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    return SaveStore(tmp_path / "sandboxes", is_shared=request.param == "shared")


def content(save: Save | None) -> str:
    """What `make_save` put into the top layer."""
    if save is None:
        return ""
    assert save.error == ""
    top = max((save.root / OVERLAYS).iterdir(), key=lambda path: int(path.stem)).read_bytes()
    return next(word for word in ("old", "new") if f"the {word} one".encode() in top)


def make(store: SaveStore, word: str) -> None:
    make_save(store, NAME, f"the {word} one".encode(), replace=True)


def clear(store: SaveStore) -> None:
    shutil.rmtree(store.root, ignore_errors=True)


def trashed(store: SaveStore) -> list[str]:
    return [content(found.save) for found in store.trash()]


def check_nothing_left(store: SaveStore) -> None:
    store.recover()
    for root in {store.root, store.house}:
        left = {path.name for path in root.iterdir()} if root.exists() else set()
        assert left <= {NAME, ".lock", ".trash", HOUSE}
    for entry in store.trash():
        assert {path.name for path in entry.root.iterdir()} == {".quicksand", "save", "trash.json"}
        assert entry.save.name == NAME
    if (store.house / ".trash").exists():
        assert len(list((store.house / ".trash").iterdir())) == len(store.trash())


def test_the_first_save_of_a_name(store: SaveStore) -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(content(store.get(NAME)))
        check_nothing_left(store)
        assert (seen[-1], content(store.get(NAME))) != ("new", "")
        assert trashed(store) == []

    assert kill_at_each(store.root, lambda: make(store, "new"), lambda: clear(store), look) > 10
    assert set(seen) == {"", "new"}


def test_saving_over_a_save(store: SaveStore) -> None:
    seen: list[str] = []

    def reset() -> None:
        clear(store)
        make(store, "old")

    def look() -> None:
        # By listing as well as by name, whichever comes first after the crash.
        if len(seen) % 2:
            assert [save.name for save in store.list()] == [NAME]
        seen.append(content(store.get(NAME)))
        check_nothing_left(store)
        # A whole one that had not got its name yet gets it now; what was replaced stays.
        now = content(store.get(NAME))
        assert (seen[-1], now) != ("new", "old")
        assert [now, *trashed(store)] in (["old"], ["new", "old"])

    assert kill_at_each(store.root, lambda: make(store, "new"), reset, look) > 20
    assert set(seen) == {"old", "new"}


BOTH_OR_TRASHED = (["old"], ["", "old"])
"""The save by its name, and what is in the trash."""


def test_moving_to_the_trash(store: SaveStore) -> None:
    assert of_a_save(store, lambda: store.remove(NAME), BOTH_OR_TRASHED) == {"old", ""}


def test_bringing_back(store: SaveStore) -> None:
    def restore() -> None:
        store.restore(store.trash()[0].id)

    assert of_a_save(store, restore, BOTH_OR_TRASHED, in_trash=True) == {"old", ""}


def test_removing_for_good(store: SaveStore) -> None:
    assert of_a_save(store, lambda: store.delete(NAME), (["old"], [""])) == {"old", ""}


def of_a_save(
    store: SaveStore,
    attempt: Callable[[], object],
    allowed: Collection[list[str]],
    *,
    in_trash: bool = False,
) -> set[str]:
    """What the name of a save led to after each kill of ``attempt``."""
    seen: list[str] = []

    def reset() -> None:
        clear(store)
        make(store, "old")
        if in_trash:
            store.remove(NAME)

    def look() -> None:
        seen.append(content(store.get(NAME)))
        check_nothing_left(store)
        assert [content(store.get(NAME)), *trashed(store)] in allowed

    assert kill_at_each(store.root, attempt, reset, look) > 5
    return set(seen)


def test_emptying_the_trash(store: SaveStore) -> None:
    seen: list[str] = []

    def reset() -> None:
        clear(store)
        make(store, "old")
        store.remove(NAME)

    def look() -> None:
        check_nothing_left(store)
        # A whole one or none: what is half removed cannot be brought back.
        seen.append("".join(trashed(store)))

    def empty() -> None:
        store.empty_trash([found.id for found in store.trash()])

    assert kill_at_each(store.root, empty, reset, look) > 5
    assert set(seen) == {"old", ""}


def test_recovering(store: SaveStore) -> None:
    """Killed while it clears up after another death."""
    old, new = store.root.with_name("old"), store.root.with_name("new")

    def reset() -> None:
        clear(store)
        for path, word in ((old, "old"), (new, "new")):
            clear(SaveStore(path))
            make(SaveStore(path), word)
        store.house.mkdir(parents=True)
        shutil.move(old / NAME, store.root / NAME)
        for prefix in (MAKING, GONE):
            place = make_marked(store.house / f"{prefix}{0:012x}")
            shutil.copytree(new / NAME, place / "save")
        ready = make_marked(store.house / f"{READY}{0:012x}")
        shutil.move(new / NAME, ready / "save")
        inode = (ready / "save").stat().st_ino
        (ready / "ready.json").write_text(f'{{"name": "{NAME}", "inode": {inode}}}')

    def look() -> None:
        assert content(store.get(NAME)) in ("old", "new")
        check_nothing_left(store)
        assert [content(store.get(NAME)), *trashed(store)] == ["new", "old"]

    assert kill_at_each(store.root, store.recover, reset, look) > 20


def test_what_this_user_saves_is_known_as_such_at_every_instant(
    store: SaveStore, tmp_path: Path
) -> None:
    """The one that is replaced, and the one that takes its place."""
    own = Paths(runtime=tmp_path / "run", data=tmp_path / "data", cache=tmp_path / "cache")
    seen: list[str] = []

    def save(word: str) -> None:
        with store.making() as made:
            manifest = fill_save(made, f"the {word} one".encode())
            _publish(own, store, made, NAME, manifest, replace_it=True)

    def reset() -> None:
        clear(store)
        shutil.rmtree(own.data, ignore_errors=True)
        save("old")

    def look() -> None:
        seen.append(content(store.get(NAME)))
        assert is_own(store.root / NAME, own)
        check_nothing_left(store)
        assert is_own(store.root / NAME, own)
        assert [fits(found.save.root, store.root / NAME, own) for found in store.trash()] in (
            [],
            [True],
        )

    assert kill_at_each(tmp_path, lambda: save("new"), reset, look) > 20
    assert set(seen) == {"old", "new"}
