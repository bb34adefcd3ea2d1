"""Saves that move: what goes in comes out, once, whole, and nothing else changes."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from pathlib import Path
from typing import Any

import pytest
from quicksand import saves
from quicksand.base.errors import (
    BundleError,
    ConfigError,
    DiskSpaceError,
    PathError,
    SaveError,
    SaveNotFoundError,
)
from quicksand.base.removal import MARK
from quicksand.saves.bundle import receiving
from quicksand.saves.bundle.exporting import export_save
from quicksand.saves.bundle.manifest import BundleKind
from quicksand.saves.ownership import is_own
from quicksand.saves.rebasing import rebase
from quicksand.saves.save_manifest import check_save, load_save

from quicksand_tui.model.remedy_words import hint_of
from tests.unit.saves.bundles.making import Home, contents, digests, forge, members, pack, sign
from tests.unit.saves.making import make_save


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_a_save_moves(here: Home, there: Home, tmp_path: Path, full: bool, compress: bool) -> None:
    if not full:
        there.add_image()
    bundle = here.export(tmp_path / "b.quicksand", full=full, compress=compress)
    before = contents(here.paths.data)
    done = there.import_(tmp_path / "b.quicksand")
    assert (done.kind, done.name, done.image_added) == (BundleKind.SAVE, "env", full)
    old, new = here.saves.find("env"), there.saves.find("env")
    assert new.require() == old.require()
    assert digests(new) == digests(old)
    assert check_save(new.root)
    image = there.images.get("debian")
    assert image is not None
    assert image == there.images.load(image.root)
    assert there.images.verify(image) == []
    if full:
        original = here.images.get("debian")
        assert original is not None
        ours, theirs = (
            json.loads((i.root / "manifest.json").read_text()) for i in (image, original)
        )
        assert ours == theirs
    assert contents(here.paths.data) == before
    assert (tmp_path / "b.quicksand").read_bytes() == bundle


def test_a_bundle_is_a_tar_that_everybody_reads(here: Home, tmp_path: Path) -> None:
    bundle = here.export(tmp_path / "b", full=True)
    names = [
        "manifest.json",
        "overlays/0.qcow2",
        "overlays/1.qcow2",
        "image.qcow2",
        "image.kernel",
        "image.initrd",
    ]
    files = members(bundle)
    assert list(files) == names
    manifest = json.loads(files["manifest.json"])
    assert (manifest["format"], manifest["version"], manifest["kind"]) == (
        "quicksand-bundle",
        1,
        "save",
    )
    assert manifest["full"] is True
    assert [file["name"] for file in manifest["files"]] == names[1:]
    with tarfile.open(fileobj=io.BytesIO(bundle)) as tar:
        assert {(i.uid, i.gid, i.mode, i.mtime) for i in tar} == {(0, 0, 0o600, 1_700_000_000)}


def test_the_same_save_makes_the_same_bytes(here: Home, there: Home, tmp_path: Path) -> None:
    first = here.export(tmp_path / "1", full=True)
    assert here.export(tmp_path / "2", full=True) == first
    there.import_(first)
    assert there.export(tmp_path / "3", full=True) == first


def test_what_others_packed_is_read(here: Home, there: Home, tmp_path: Path) -> None:
    """Unpacked and packed again by another program, and by gzip."""
    bundle = here.export(tmp_path / "b", full=True)
    there.import_(gzip.compress(pack(members(bundle)), 1))
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))


def test_holes_stay_holes(here: Home, there: Home, tmp_path: Path) -> None:
    save = make_save(here.saves, "big", b"x")
    path = save.root / "overlays" / "0.qcow2"
    with path.open("r+b") as file:
        file.truncate(64 << 20)
    (save.root / "manifest.json").write_text(json.dumps(_rewritten(save.root)))
    there.import_(here.export(tmp_path / "b", "big", full=True))
    copy = there.paths.saves / "big" / "overlays" / "0.qcow2"
    assert copy.read_bytes() == path.read_bytes()
    assert copy.stat().st_blocks * 512 < 1 << 20


def _rewritten(root: Path) -> dict[str, Any]:
    plain = json.loads((root / "manifest.json").read_text())
    data = (root / "overlays" / "0.qcow2").read_bytes()
    plain["layers"][0] |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return dict(plain)


# Names


def test_another_name(here: Home, there: Home, tmp_path: Path) -> None:
    bundle = here.export(tmp_path / "b", full=True)
    assert there.import_(bundle, name="étage 2").name == "étage 2"
    assert [save.name for save in there.saves.list()] == ["étage 2"]


@pytest.mark.parametrize(
    "name", ["..", "a/b", "/etc/x", ".hidden", "", "a\nb", "x" * 201, "\ud800"]
)
def test_a_name_that_cannot_be_is_refused(
    here: Home, there: Home, tmp_path: Path, name: str
) -> None:
    bundle = here.export(tmp_path / "b", full=True)

    def rename(manifest: dict[str, Any], _: object) -> None:
        manifest["name"] = name

    before = contents(tmp_path)
    with pytest.raises(ConfigError, match="is no name for a save") as caught:
        there.import_(forge(bundle, rename))
    assert "--name" in hint_of(caught.value)
    if name:
        with pytest.raises(ConfigError, match="is no name for a save"):
            there.import_(bundle, name=name)
    assert contents(tmp_path) == before


def test_a_name_that_is_taken(here: Home, there: Home, tmp_path: Path) -> None:
    bundle = here.export(tmp_path / "b", full=True)
    there.add_image()
    old = there.add_save("env", b"other")
    before = contents(there.paths.data)
    with pytest.raises(SaveError, match="there is a save 'env'"):
        there.import_(bundle)
    assert contents(there.paths.data) == before
    there.import_(bundle, replace=True)
    assert digests(there.saves.find("env")) == digests(here.saves.find("env"))
    assert [t.save.manifest for t in there.saves.trash()] == [old.manifest]


def test_two_imports_to_one_name_at_once(here: Home, there: Home, tmp_path: Path) -> None:
    """One of them is the save; whichever it is, it is whole."""
    here.add_save("other", b"another")
    bundles = [here.export(tmp_path / name, name, full=True) for name in ("env", "other")]
    for replace in (False, True):
        errors: list[Exception] = []
        barrier = threading.Barrier(4)

        def attempt(
            number: int, replace: bool = replace, barrier: threading.Barrier = barrier,
            errors: list[Exception] = errors,
        ) -> None:  # fmt: skip
            barrier.wait()
            try:
                there.import_(bundles[number % 2], name=f"both{replace}", replace=replace)
            except SaveError as error:
                errors.append(error)

        threads = [threading.Thread(target=attempt, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(errors) == (0 if replace else 3)
        found = there.saves.find(f"both{replace}")
        check_save(found.root)
        assert digests(found) in [digests(here.saves.find(name)) for name in ("env", "other")]
    assert len(there.saves.trash()) == 3
    image = there.images.get("debian")
    assert image is not None
    assert there.images.verify(image) == []
    hidden = {p.name for p in there.paths.data.rglob(".*")}
    assert hidden == {".lock", ".trash", ".importing-lock", MARK}


# Damage at the source


def test_a_damaged_layer_is_not_exported(here: Home, tmp_path: Path) -> None:
    path = here.saves.find("env").root / "overlays" / "1.qcow2"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (tmp_path / "b").write_bytes(b"old")
    with pytest.raises(BundleError, match=r"1\.qcow2.* is damaged"):
        here.export(tmp_path / "b")
    assert (tmp_path / "b").read_bytes() == b"old"
    path.write_bytes(data[:-1])
    with pytest.raises(SaveError, match="instead of"):
        here.export(tmp_path / "b")


@pytest.mark.parametrize("part", ["overlays/0.qcow2", "overlays"])
def test_links_are_not_followed(here: Home, tmp_path: Path, part: str) -> None:
    path = here.saves.find("env").root / part
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    if part == "overlays":
        # A directory in the store is its owner's affair; files are what is read.
        assert here.export(tmp_path / "b")
        return
    with pytest.raises(SaveError, match="no file"):
        here.export(tmp_path / "b")


def test_a_save_whose_config_no_import_takes_is_exported_with_a_word(
    here: Home, there: Home, tmp_path: Path
) -> None:
    path = here.saves.find("env").root / "manifest.json"
    plain = json.loads(path.read_text())
    plain["config"]["extra_qemu_args"] = ["-device", "virtio-rng-pci"]
    path.write_text(json.dumps(plain))
    done = export_save(load_save(path.parent), tmp_path / "b", here.paths, full=True)
    assert "--trust" in done.notes[0]
    with pytest.raises(BundleError, match="virtio-rng") as caught:
        there.import_(tmp_path / "b")
    assert "--trust" in hint_of(caught.value)
    there.import_(tmp_path / "b", trusted=True)
    assert there.saves.find("env").require().config.extra_qemu_args[0] == "-device"


# Limits and progress


def test_progress_is_in_bytes_and_what_it_raises_ends_the_work(
    here: Home, there: Home, tmp_path: Path
) -> None:
    seen: list[tuple[str, int, int]] = []
    bundle = here.export(tmp_path / "b", full=True, progress=lambda *step: seen.append(step))
    total = sum(len(data) for name, data in members(bundle).items() if name != "manifest.json")
    assert seen[-1] == ("writing", total, total)
    seen.clear()
    there.import_(bundle, name="1", progress=lambda *step: seen.append(step))
    assert seen[-1] == ("reading", total, total)
    assert all(0 < done <= all_ for _, done, all_ in seen)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = contents(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        here.export(tmp_path / "2", full=True, progress=stop)
    with pytest.raises(KeyboardInterrupt):
        there.import_(bundle, name="2", progress=stop)
    assert contents(tmp_path) == before


def test_no_space_is_told_before_anything_is_written(
    here: Home, there: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = here.export(tmp_path / "b", full=True)
    monkeypatch.setattr(receiving, "DISK_RESERVE", 2**62)
    before = contents(tmp_path)
    with pytest.raises(DiskSpaceError, match="of free space"):
        there.import_(bundle)
    assert contents(tmp_path) == before


# The public functions


async def test_the_public_functions(here: Home, there: Home, tmp_path: Path) -> None:
    there.add_image()
    there.add_save("mine")
    file = tmp_path / "mine.quicksand"
    done = await saves.export("mine", file, full=True)
    assert (done.kind, done.name, done.full) == (BundleKind.SAVE, "mine", True)
    image = await saves.export("debian", tmp_path / "image.quicksand", image=True)
    assert (image.kind, image.name) == (BundleKind.IMAGE, "debian")
    again = await saves.import_(str(file), name="yours")
    assert again.root == there.paths.saves / "yours"
    with pytest.raises(SaveNotFoundError, match="nobody"):
        await saves.export("nobody", file)
    with pytest.raises(PathError, match="missing"):
        await saves.import_(tmp_path / "missing")


async def test_a_save_in_the_workspace_is_exported(there: Home, tmp_path: Path) -> None:
    there.add_image()
    save = there.add_save("mine")
    workspace = tmp_path / "cwd" / ".quicksand" / "sandboxes"
    workspace.mkdir(parents=True)
    save.root.rename(workspace / "local")
    assert (await saves.export("local", tmp_path / "b")).name == "local"
    assert (await saves.export(workspace / "local", tmp_path / "b")).name == "local"


async def test_a_cancelled_export_or_import_leaves_nothing(there: Home, tmp_path: Path) -> None:
    there.add_image()
    there.add_save("mine")
    await saves.export("mine", tmp_path / "b", full=True)
    before = contents(tmp_path)
    for number in range(2):
        reached, go_on = threading.Event(), threading.Event()

        def wait(
            *_: object, reached: threading.Event = reached, go_on: threading.Event = go_on
        ) -> None:
            reached.set()
            go_on.wait(60)

        work = (
            saves.export("mine", tmp_path / "c", progress=wait),
            saves.import_(tmp_path / "b", name="new", progress=wait),
        )
        task = asyncio.create_task(work[number])
        work[1 - number].close()
        assert await asyncio.to_thread(reached.wait, 60)
        task.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert contents(tmp_path) == before


async def test_an_import_that_waits_for_a_pipe_can_be_cancelled(
    there: Home, tmp_path: Path
) -> None:
    read, write = os.pipe()
    before = contents(tmp_path)
    with os.fdopen(read, "rb") as file:
        task = asyncio.create_task(saves.import_(file))
        await asyncio.sleep(0.05)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    os.close(write)
    assert contents(tmp_path) == before


def test_a_bundle_of_an_image_or_of_an_empty_save_is_refused(there: Home) -> None:
    for manifest in ({}, {"format": "other"}, {"format": "quicksand-bundle"}):
        with pytest.raises(BundleError):
            there.import_(pack({"manifest.json": json.dumps(manifest).encode()}))
    signed = sign({"format": "quicksand-bundle", "version": 1, "kind": "image", "files": []})
    with pytest.raises(BundleError, match="created is not a time"):
        there.import_(pack({"manifest.json": signed}))
    assert there.saves.list() == []


def test_what_was_imported_counts_as_ones_own_only_if_it_is_trusted(
    here: Home, there: Home, tmp_path: Path
) -> None:
    bundle = here.export(tmp_path / "b", full=True)
    assert is_own(here.saves.find("env").root, here.paths)
    assert not is_own(there.import_(bundle).root, there.paths)
    # Another name, the trash and back, another base: it stays so.
    there.saves.remove("env")
    back = there.saves.restore(there.saves.trash()[0].id, "other")
    assert not is_own(back.root, there.paths)
    rebased = rebase(back, there.add_image("another", b"other").name, there.paths)
    assert not is_own(rebased.root, there.paths)
    trusted = there.import_(bundle, name="known", trusted=True)
    assert is_own(trusted.root, there.paths)
