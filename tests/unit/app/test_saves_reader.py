"""Saves on disk as the app sees them: as the command lists them, harmless, and read anew only when
something has changed."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand.base.files import write_json
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.sandboxes import SaveSource
from quicksand.saves.census import Census
from quicksand.saves.finding import all_stores
from quicksand.saves.ownership import mark_made
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, Base
from quicksand.saves.store import SaveStore
from quicksand.things.fact import json_of
from quicksand.things.save import SAVE, TRASHED, SaveFacts, Verification

from quicksand_tui.cli.main import run
from quicksand_tui.door import saves_look as saves_reader
from quicksand_tui.door.saves_look import SavesReader
from quicksand_tui.model.shown_saves import SavesView
from quicksand_tui.views.save_rows import path_text
from tests.unit.app.corpus import HOSTILE
from tests.unit.cli.run_cli import make_stopped
from tests.unit.saves.making import make_published, make_save


def by_name(view: SavesView) -> dict[str, SaveFacts]:
    return {save.name: save for save in view.saves}


def fill(places: Paths, store: SaveStore, base: Base) -> None:
    """A family, one of the workspace, a published one, a damaged one, one without its base, two in
    the trash."""
    first = make_save(store, "first", os.urandom(65536), base=base, note="gcc, make")
    make_save(store, "second", b"2", over=first, base=base)
    make_save(all_stores(places)[0], "near", b"3", base=base)
    make_save(all_stores(places)[0], "first", b"4", base=base)
    make_published(store.root / "theirs", b"5")
    make_save(store, "lost", b"6", base=Base(name="gone", digest="0" * 64))
    make_save(store, "broken", b"7", base=base)
    (store.root / "broken" / MANIFEST).write_text("{")
    for name in ("old", "older"):
        make_save(store, name, b"8", over=first, base=base)
        store.remove(name)
    record = make_stopped(places, "box")
    source = SaveSource(path="/x", name="first", id=first.require().id, digest="")
    write_json(sandbox_dir(places, record.id).record, replace(record, source=source).to_json())


def test_nothing_on_disk_is_an_empty_view(store: SaveStore) -> None:
    view = SavesReader().read()
    assert (view.loaded, view.saves, view.trash, view.size, view.error) == (True, (), (), 0, "")


def test_a_store_is_read_as_the_command_lists_it(
    places: Paths, store: SaveStore, base: Base, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(places, store, base)
    assert run(["saves", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    view = SavesReader().read()
    assert [json_of(save, SAVE) for save in view.saves] == listed
    assert run(["saves", "trash", "--json"]) == 0
    trash = json.loads(capsys.readouterr().out)
    assert view.trash_frees == trash["frees"]
    told = [json_of(found, TRASHED, without=("kind",)) for found in reversed(view.trash)]
    assert told == trash["saves"]
    assert {Path(one["path"]).name for one in trash["saves"]} == {"save"}


def test_what_a_command_calls_it_is_its_path_where_the_name_leads_elsewhere(
    places: Paths, store: SaveStore, base: Base
) -> None:
    fill(places, store, base)
    near, own = (save for save in SavesReader().read().saves if save.name == "first")
    # What was made here comes first; what the directory offers is called by a path.
    assert (near.place, near.is_own, near.address) == ("workspace", False, "./first")
    assert (own.place, own.is_own, own.address) == ("user", True, "first")
    mark_made(Path(near.key), Path(near.key), places)
    near, own = (save for save in SavesReader().read().saves if save.name == "first")
    assert (near.is_own, near.address) == (True, "first")
    assert (own.is_own, own.address) == (True, str(store.root / "first"))
    assert (own.memory, own.cpus, own.network, own.layers) == (512 << 20, 1, "mounts_only", 1)


def test_troubles_have_their_words(places: Paths, store: SaveStore, base: Base) -> None:
    fill(places, store, base)
    troubles = {name: save.trouble for name, save in by_name(SavesReader().read()).items()}
    assert {name for name, trouble in troubles.items() if trouble == "damaged"} == {"broken"}
    assert {name for name, trouble in troubles.items() if trouble == "no base"} == {"lost"}


def test_an_unchanged_store_gives_the_same_view_and_is_not_read(
    places: Paths, store: SaveStore, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(places, store, base)
    looks: list[Paths] = []

    def census(paths: Paths) -> Census:
        looks.append(paths)
        return Census(paths)

    monkeypatch.setattr(saves_reader, "Census", census)
    looking = SavesReader()
    first = looking.read()
    assert looking.read() is first and len(looks) == 1
    assert looking.read(fresh=True) is first and len(looks) == 2
    store.remove("lost")
    assert "lost" not in by_name(looking.read()) and len(looks) == 3
    # What no directory tells a slower look finds.
    layer = store.root / "first" / OVERLAYS / "0.qcow2"
    layer.write_bytes(layer.read_bytes()[:-1])
    assert by_name(looking.read())["second"].trouble == ""
    looking._next = 0.0
    assert by_name(looking.read())["second"].trouble == "damaged"


def test_a_verdict_is_of_one_save_and_not_of_another_that_has_its_name(
    store: SaveStore, base: Base
) -> None:
    made = make_save(store, "dev", b"1", base=base)
    make_save(store, "other", b"2", base=base)
    looking = SavesReader()
    before = looking.read()
    verdict = Verification(deep=True, when=5.0, problems=("0.qcow2 has changed",))
    looking.learn({str(made.root): (made.require().id, verdict)})
    after = looking.read()
    assert after is not before and after.trash is before.trash
    assert by_name(after)["dev"].verdict == verdict
    assert by_name(after)["other"] is by_name(before)["other"] or (
        by_name(after)["other"] == by_name(before)["other"]
    )
    assert looking.read() is after
    make_save(store, "dev", b"3", base=base, replace=True)
    assert by_name(looking.read())["dev"].verdict is None


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_notes_names_and_paths_are_made_harmless(
    store: SaveStore, base: Base, text: str
) -> None:
    make_save(store, "dev", b"1", base=base)
    path = store.root / "dev" / MANIFEST
    manifest = json.loads(path.read_text())
    foreign = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    manifest |= {
        "note": foreign,
        "volatile": [foreign] * 100,
        "parent": {"name": foreign, "id": "0" * 12},
        "base": {"name": "debian", "version": foreign, "digest": foreign},
    }
    path.write_text(json.dumps(manifest))
    directory = store.root / (foreign.replace("/", "").replace("\0", "").strip(".")[:60] or "x")
    (store.root / "dev").rename(directory)
    (found,) = SavesReader().read().saves
    assert found.key == str(directory)
    told = (found.name, found.address, path_text(found), found.note, found.parent, found.base)
    for shown in (*told, found.base_digest, *found.volatile, *found.problems):
        assert all(char.isprintable() for char in shown), repr(shown)
        assert len(shown) <= 1000
    assert len(found.volatile) <= 20


def test_a_store_that_cannot_be_read_is_an_error_and_no_exception(
    store: SaveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise PermissionError(13, "Permission denied\x1b[2J", str(store.root))

    monkeypatch.setattr(saves_reader, "Census", refuse)
    view = SavesReader().read()
    assert view.loaded and "Permission denied" in view.error and "\x1b" not in view.error


def test_looking_leaves_the_collector_as_it_was(store: SaveStore, base: Base) -> None:
    make_save(store, "dev", b"1", base=base)
    frozen = gc.get_freeze_count()
    SavesReader().read()
    assert gc.isenabled() and gc.get_freeze_count() == frozen
    gc.disable()
    try:
        SavesReader().read()
        assert not gc.isenabled()
    finally:
        gc.enable()
