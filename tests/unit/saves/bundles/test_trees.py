"""Sandboxes that move with all their checkpoints."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import saves
from quicksand.base.errors import BundleError, ConfigError, HistoryError, NameTakenError, StateError
from quicksand.base.files import try_lock
from quicksand.base.paths import Paths
from quicksand.records.config import NetworkMode
from quicksand.records.inspection import Held, say_held
from quicksand.records.nodes import Node, new_id
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.saves.bundle.by_name import find_reasons
from quicksand.saves.bundle.exporting import Exported
from quicksand.saves.bundle.manifest import BundleKind
from quicksand.saves.bundle.tree_export import NOTE_RUNNING, export_tree
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.last_checkpoint import keep_left_behind
from quicksand.snapshots.layers import add_layer
from quicksand.things.status import Status

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import share_findings
from tests.faults import fault
from tests.unit.disks.diff.disks import write_clusters
from tests.unit.saves.bundles.boxes import check_whole, make_box, place_of
from tests.unit.saves.bundles.making import Home, contents, forge, members

__all__ = ["fault"]


@pytest.fixture
def record(here: Home) -> Record:
    return make_box(here)


async def export(here: Home, record: Record, target: Path, **options: Any) -> Exported:
    return await export_tree(here.registry, record, target, **options)


@pytest.fixture
async def bundle(here: Home, record: Record, tmp_path: Path) -> bytes:
    await export(here, record, tmp_path / "tree", full=True)
    return (tmp_path / "tree").read_bytes()


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("full", [False, True])
async def test_a_sandbox_moves_with_its_checkpoints(
    here: Home, there: Home, record: Record, tmp_path: Path, full: bool, compress: bool
) -> None:
    if not full:
        there.add_image()
    before = contents(here.paths.data)
    target = tmp_path / "b"
    told = await export(here, record, target, full=full, compress=compress)
    assert (told.kind, told.name, told.checkpoints) == (BundleKind.TREE, "box", 3)
    assert any("secret" in note for note in told.notes)
    assert contents(here.paths.data) == before
    assert target.stat().st_mode & 0o777 == 0o600
    done = there.import_(target)
    assert (done.kind, done.name, done.checkpoints) == (BundleKind.TREE, "box", 3)
    (entry,) = there.registry.list()
    assert (entry.status, entry.name, entry.id) == (Status.STOPPED, "box", done.id)
    assert entry.id != record.id
    assert entry.record is not None
    assert entry.record.config == record.config
    image = there.images.find_version("debian", record.image_digest)
    assert image is not None
    assert entry.record.chain == (str(image.disk.resolve()),)
    old, new = check_whole(here, record.id), check_whole(there, done.id)
    assert [node.tag for node in new] == ["root", "child", "other"]
    for before_, after in zip(old, new, strict=True):
        same = {f: getattr(after, f) for f in Node.__slots__ if f not in ("parent", "owner")}
        assert same == {f: getattr(before_, f) for f in same}
        # Whose names and secrets its memory has: not the new sandbox's.
        assert after.owner == record.id
    # What hung on a hidden one hangs on the next one above that.
    assert [node.parent for node in new] == [None, new[0].id, new[1].id]
    place, original = place_of(there, entry.record), place_of(here, record)
    head, old_head = History(place).head(), History(original).head()
    assert (head.layers, head.top, head.node) == (old_head.layers, old_head.top, old_head.node)
    assert place.layer(head.top).read_bytes() == original.layer(old_head.top).read_bytes()


async def test_one_that_has_a_disk_only_moves_too(
    here: Home, there: Home, record: Record, tmp_path: Path
) -> None:
    history = history_of(here.registry, record.id)
    head = history.head()
    assert keep_left_behind(history, head, history.find("root")) is None, "nothing was written"
    write_clusters(history.place.layer(head.top), {3: b"later"})
    kept = keep_left_behind(history, head, history.find("root"))
    assert kept is not None
    assert (kept.layers, kept.parent) == ((*head.layers, head.top), head.node)
    assert keep_left_behind(history, head, kept) is None, "it is there already"
    top = new_id()
    add_layer(history.place, top, below=head.top)
    history.set_head(replace(head, layers=kept.layers, top=top, node=kept.id))
    await export(here, record, tmp_path / "b", full=True)
    done = there.import_(tmp_path / "b")
    assert check_whole(there, done.id)[-1].tier.name == "disk"


async def test_it_stays_whole_when_it_is_used(there: Home, bundle: bytes) -> None:
    """What is swept away is what nobody needs, and a checkpoint can be deleted."""
    done = there.import_(bundle)
    history = history_of(there.registry, done.id)
    before = contents(there.paths.data)
    history.sweep()
    assert contents(there.paths.data) == before
    history.remove(history.find("child"))
    assert [node.tag for node in check_whole(there, done.id)] == ["root", "other"]
    there.registry.remove(done.id)
    assert there.registry.list() == []


async def test_the_same_sandbox_makes_the_same_bytes(
    here: Home, record: Record, tmp_path: Path, bundle: bytes
) -> None:
    await export(here, record, tmp_path / "again", full=True)
    assert (tmp_path / "again").read_bytes() == bundle


async def test_a_running_one_is_exported_up_to_its_last_checkpoint(
    here: Home, there: Home, record: Record, tmp_path: Path
) -> None:
    lock = try_lock(place_of(here, record).lock)
    assert lock is not None
    try:
        told = await export(here, record, tmp_path / "b", full=True)
    finally:
        os.close(lock)
    assert NOTE_RUNNING in told.notes
    head = History(place_of(here, record)).head()
    assert f"layers/{head.top}.qcow2" not in members((tmp_path / "b").read_bytes())
    done = there.import_(tmp_path / "b")
    nodes = {node.tag: node for node in check_whole(there, done.id)}
    new = history_of(there.registry, done.id).head()
    assert (new.node, new.layers) == (nodes["other"].id, nodes["other"].layers)
    assert history_of(there.registry, done.id).place.layer(new.top).exists()


async def test_checkpoints_can_be_taken_and_deleted_while_it_is_written(
    here: Home, there: Home, record: Record, tmp_path: Path
) -> None:
    place = place_of(here, record)
    lock = try_lock(place.lock)
    assert lock is not None
    history = History(place)

    def delete(*_: object) -> None:
        for node in history.nodes():
            if node.tag == "child":
                history.remove(node)

    try:
        await export(here, record, tmp_path / "b", full=True, progress=delete)
    finally:
        os.close(lock)
    assert [node.tag for node in history.nodes()] == ["root", "other"]
    done = there.import_(tmp_path / "b")
    assert [node.tag for node in check_whole(there, done.id)] == ["root", "child", "other"]


async def test_a_stopped_one_cannot_start_meanwhile(
    here: Home, record: Record, tmp_path: Path
) -> None:
    tried: list[bool] = []

    def start(*_: object) -> None:
        if tried:
            return
        with pytest.raises(StateError):
            here.registry.lock(record.id)
        tried.append(True)

    await export(here, record, tmp_path / "b", progress=start)
    assert tried
    os.close(here.registry.lock(record.id))


async def test_the_disk_alone_can_move(
    here: Home, there: Home, record: Record, tmp_path: Path
) -> None:
    history = History(place_of(here, record))
    for node in history.nodes():
        history.pin(node, False)
    for node in history.nodes():
        history.remove(node)
    await export(here, record, tmp_path / "b", full=True)
    done = there.import_(tmp_path / "b", name="disk")
    assert (done.name, done.checkpoints) == ("disk", 0)
    head = history_of(there.registry, done.id).head()
    assert head.layers == history.head().layers
    lock = try_lock(place_of(here, record).lock)
    assert lock is not None
    say_held(lock, Held.RUN)
    with pytest.raises(StateError, match="no checkpoints"):
        await export(here, record, tmp_path / "b")
    os.close(lock)


async def test_damage_is_found_before_it_moves(here: Home, record: Record, tmp_path: Path) -> None:
    place = place_of(here, record)
    node = History(place).nodes()[0]
    for path in (
        *(place.memory / file.name for file in node.files),
        place.checkpoints / node.id / "devices",
        place.layer(node.layers[0]),
    ):
        good = path.read_bytes()
        path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        with pytest.raises(BundleError, match="is damaged"):
            await export(here, record, tmp_path / "b")
        path.write_bytes(good[:-1])
        with pytest.raises(BundleError, match="is damaged"):
            await export(here, record, tmp_path / "b")
        path.unlink()
        path.symlink_to("/etc/hostname")
        with pytest.raises(BundleError, match=r"not a regular file|not a usable"):
            await export(here, record, tmp_path / "b")
        path.unlink()
        path.write_bytes(good)
    assert not (tmp_path / "b").exists()
    mark = next(place.checkpoints.glob("*/node.json"))
    mark.write_text("{")
    with pytest.raises(HistoryError, match="damaged") as caught:
        await export(here, record, tmp_path / "b")
    assert f"checkpoint rm box {mark.parent.name}" in hint_of(caught.value)


# Names


async def test_names_of_sandboxes(there: Home, bundle: bytes, tmp_path: Path) -> None:
    there.import_(bundle)
    before = contents(there.paths.data)
    with pytest.raises(NameTakenError, match="'box'") as caught:
        there.import_(bundle)
    assert "--name" in hint_of(caught.value)
    with pytest.raises(ConfigError, match="cannot replace"):
        there.import_(bundle, replace=True)
    for name in ("../x", "a b", ""):
        if name:
            with pytest.raises(ConfigError, match="no name for a sandbox"):
                there.import_(bundle, name=name)

        def rename(manifest: dict[str, Any], _: object, name: str = name) -> None:
            manifest["name"] = name

        with pytest.raises(ConfigError, match="no name for a sandbox"):
            there.import_(forge(bundle, rename))
    assert contents(there.paths.data) == before
    assert there.import_(bundle, name="second").name == "second"


async def test_one_without_a_name_gets_none(
    here: Home, there: Home, record: Record, tmp_path: Path
) -> None:
    here.registry.save(replace(record, name=record.id))
    found = here.registry.find(record.id).record
    assert found is not None
    await export(here, found, tmp_path / "b", full=True)
    done = there.import_(tmp_path / "b")
    assert done.name == done.id != record.id


# Going on from it


@pytest.fixture
def qemu(there: Home, prepared: Paths) -> None:
    """Where `make setup` has put it, with what is known of it."""
    share_findings(prepared, there.paths.cache)
    (there.paths.data / "qemu").symlink_to(prepared.data / "qemu")


@pytest.mark.usefixtures("qemu")
async def test_what_cannot_be_gone_on_from_here_is_said(
    there: Home, bundle: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = there.import_(bundle)
    record = there.registry.find(done.id).record
    assert record is not None
    (reason,) = await find_reasons(there.registry, record)
    assert "root, child, other" in reason
    assert "QEMU version 1.2.3, not" in reason
    monkeypatch.setenv("QUICKSAND_QEMU_DIR", "/nowhere")
    (reason,) = await find_reasons(there.registry, record)
    assert "was not found on this host" in reason


@pytest.mark.usefixtures("qemu")
async def test_the_public_functions_say_it_too(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(here.paths.data))
    record = make_box(here, "mine", network_mode="full")
    await saves.export("mine", tmp_path / "b", tree=True, full=True)
    monkeypatch.setenv("QUICKSAND_DATA_DIR", str(there.paths.data))
    done = await saves.import_(tmp_path / "b")
    assert ["full" in done.notes[0], "1.2.3" in done.notes[1]] == [True, True]
    found = Registry(there.paths).find("mine")
    assert found.id != record.id
    # Nobody has said that it may; its checkpoints are of the machine that it has now.
    assert found.record is not None
    assert found.record.config.network_mode is NetworkMode.MOUNTS_ONLY
    nodes = history_of(Registry(there.paths), found.id).nodes()
    assert nodes and {node.shape["network"] for node in nodes} == {"mounts_only"}
    known = await saves.import_(tmp_path / "b", name="known", trusted=True)
    trusted = Registry(there.paths).find(known.name).record
    assert trusted is not None and trusted.config.network_mode is NetworkMode.FULL
