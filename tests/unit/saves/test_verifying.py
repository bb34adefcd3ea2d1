"""Verifying saves: what is whole is told whole, any changed byte is found, it can be stopped."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.base.paths import Paths
from quicksand.base.threads import Stopped
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.disks.images.image_store import ImageStore
from quicksand.records.config import SandboxConfig
from quicksand.saves import verifying
from quicksand.saves.portable import write_metadata
from quicksand.saves.save_manifest import (
    MANIFEST,
    OVERLAYS,
    Base,
    Save,
    SavedLayer,
    SaveManifest,
    load_save,
)
from quicksand.saves.store import SaveStore
from quicksand.saves.verifying import BASE, Verdict, Verifier, find_any, verify_saves

from tests.unit.disks.diff.disks import write_clusters
from tests.unit.saves.making import MIB, make_layer, make_published, make_save, publish_image

DATA = 5 * 65536
"""Where `create_overlay` and `write_clusters` put the first cluster's content."""


@pytest.fixture
def store(places: Paths) -> SaveStore:
    # Images of the test's own.
    (places.data / "images").unlink(missing_ok=True)
    return SaveStore(places.saves)


@pytest.fixture
def images(places: Paths, store: SaveStore) -> ImageStore:
    return ImageStore(places.images)


def verify(places: Paths, save: Save, *, deep: bool = True) -> Verdict:
    # As it is now.
    (verdict,) = Verifier(places, deep=deep).verify([load_save(save.root)])
    return verdict


def make_based(places: Paths, store: SaveStore) -> tuple[Save, Base]:
    """With two layers of its own over that of another save."""
    image = publish_image(places)
    base = Base(name=image.name, version=image.version, digest=image.digest)
    first = make_save(store, "first", b"1", base=base)
    return make_save(store, "second", b"2", b"3", over=first, base=base), base


def flip(path: Path, offset: int) -> None:
    """Change one byte, and no date."""
    found = path.stat()
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def test_a_whole_save_is_whole(places: Paths, store: SaveStore) -> None:
    save, _ = make_based(places, store)
    for deep in (False, True):
        verdict = verify(places, save, deep=deep)
        assert (verdict.is_whole, verdict.deep) == (True, deep)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layer=st.integers(0, 2), data=st.data())
def test_any_changed_byte_is_found(
    places: Paths, store: SaveStore, layer: int, data: st.DataObject
) -> None:
    save, _ = (
        make_based(places, store) if store.get("second") is None else (store.find("second"), 0)
    )
    path = save.root / OVERLAYS / f"{layer}.qcow2"
    offset = data.draw(st.integers(0, path.stat().st_size - 1))
    flip(path, offset)
    verdict = verify(places, save)
    flip(path, offset)
    assert not verdict.is_whole
    assert verify(places, save).is_whole


def test_a_changed_byte_of_the_base_is_found(
    places: Paths, store: SaveStore, images: ImageStore
) -> None:
    save, base = make_based(places, store)
    image = images.find_version(base.name, base.digest)
    assert image is not None
    flip(image.kernel, 0)
    assert verify(places, save, deep=False).is_whole
    verdict = verify(places, save)
    assert list(verdict.problems) == [BASE]
    assert str(image.kernel) in verdict.problems[BASE]


def test_a_missing_base_is_named(places: Paths, store: SaveStore, images: ImageStore) -> None:
    save, base = make_based(places, store)
    shutil.rmtree(images.root)
    for deep in (False, True):
        assert str(base) in verify(places, save, deep=deep).problems[BASE]
    other = publish_image(places, "2")
    assert f"the one here has the digest {other.digest[:12]}" in verify(places, save).problems[BASE]


def test_what_two_saves_share_is_damaged_in_both_and_read_once(
    places: Paths, store: SaveStore, images: ImageStore
) -> None:
    second, _ = make_based(places, store)
    first = store.find("first")
    flip(first.root / OVERLAYS / "0.qcow2", DATA)
    seen: list[tuple[int, int]] = []
    verdicts = Verifier(places, deep=True, progress=lambda *x: seen.append(x)).verify(
        [first, second]
    )
    assert [list(verdict.problems) for verdict in verdicts] == [["overlays/0.qcow2"]] * 2
    assert "SHA-256" in verdicts[0].problems["overlays/0.qcow2"]
    files = sum(p.stat().st_size for p in (second.root / OVERLAYS).iterdir())
    image = images.get("debian")
    assert image is not None
    files += sum(int(part["size"]) for part in image.files.values())
    assert seen[-1] == (files, files)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_published_save_is_read_as_a_disk(places: Paths, store: SaveStore) -> None:
    publish_image(places)
    root = make_published(store.root / "env", b"1", b"2")
    save = load_save(root)
    assert verify(places, save).is_whole
    # An entry of a table that leads nowhere.
    path = root / OVERLAYS / "1.qcow2"
    with path.open("r+b") as file:
        file.seek(4 * 65536 + 8)
        file.write((1 << 62 | 1 << 50).to_bytes(8, "big"))
    assert verify(places, save, deep=False).is_whole
    assert list(verify(places, save).problems) == ["overlays/1.qcow2"]


def test_a_save_that_cannot_be_read_has_its_manifest_named(places: Paths, store: SaveStore) -> None:
    publish_image(places)
    save = make_save(store, "env", b"1")
    (save.root / MANIFEST).write_text("{")
    assert list(verify(places, save).problems) == [MANIFEST]


def test_a_save_that_goes_meanwhile_is_told(places: Paths, store: SaveStore) -> None:
    publish_image(places)
    save = make_save(store, "env", b"1")
    store.delete("env")
    (verdict,) = Verifier(places, deep=True).verify([save])
    assert list(verdict.problems) == ["overlays/0.qcow2"]


def test_links_are_not_followed(
    places: Paths, store: SaveStore, images: ImageStore, tmp_path: Path
) -> None:
    publish_image(places)
    save = make_save(store, "env", b"1")
    overlay = save.root / OVERLAYS / "0.qcow2"
    overlay.rename(tmp_path / "moved")
    overlay.symlink_to(tmp_path / "moved")
    (verdict,) = Verifier(places, deep=True).verify([save])
    assert not verdict.is_whole


def make_large(store: SaveStore, size: int) -> Save:
    with store.making() as made:
        (made / OVERLAYS).mkdir(exist_ok=True)
        for number in range(2):
            path = made / OVERLAYS / f"{number}.qcow2"
            create_overlay(path, backing=None, size=512 * MIB)
            write_clusters(path, {n: os.urandom(65536) for n in range(size // 65536 // 2)})
        (made / MANIFEST).write_text('{"version": 6, "config": {"image": "debian"}}')
        return store.publish(made, "large", replace=True)


def test_it_stops_at_once(places: Paths, store: SaveStore) -> None:
    save, seen = make_large(store, 16 * MIB), [0]

    def check() -> None:
        if any(seen):
            raise Stopped

    with pytest.raises(Stopped):
        Verifier(places, deep=True, progress=lambda done, _: seen.append(done), check=check).verify(
            [save]
        )
    assert max(seen) <= verifying.READERS * 2 * verifying.CHUNK


async def test_a_cancellation_waits_for_the_readers(places: Paths, store: SaveStore) -> None:
    save, started = make_large(store, 16 * MIB), asyncio.Event()
    loop = asyncio.get_running_loop()

    def progress(done: int, total: int) -> None:
        loop.call_soon_threadsafe(started.set)

    task = asyncio.create_task(verify_saves([save], places, deep=True, progress=progress))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not [t for t in threading.enumerate() if t.name.startswith("quicksand-verify")]


def test_what_a_published_save_lies_on_is_read_too(places: Paths, store: SaveStore) -> None:
    publish_image(places)
    low = make_published(store.root / "low", b"1")
    top = make_published(store.root / "top", b"2", image="low")
    assert verify(places, load_save(top)).is_whole
    with (low / OVERLAYS / "0.qcow2").open("r+b") as file:
        file.seek(4 * 65536 + 8)
        file.write((1 << 62 | 1 << 50).to_bytes(8, "big"))
    assert list(verify(places, load_save(top)).problems) == ["low: overlays/0.qcow2"]


def test_a_portable_snapshot_is_read_up_to_its_metadata(places: Paths, tmp_path: Path) -> None:
    (places.data / "images").unlink()
    base = publish_image(places)
    path = make_layer(tmp_path / "snap.qcow2", b"1")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    manifest = SaveManifest(
        config=SandboxConfig.parse({"image": "debian"}),
        arch="x86_64",
        id="0123456789ab",
        base=Base(name="debian", digest=base.digest),
        layers=(SavedLayer(id="0123456789ab", size=path.stat().st_size, sha256=digest),),
    )
    write_metadata(path, manifest.to_json())
    save = find_any(str(path), places)
    (verdict,) = Verifier(places, deep=True).verify([save])
    assert verdict.problems == {}
    flip(path, DATA)
    (verdict,) = Verifier(places, deep=True).verify([save])
    assert list(verdict.problems) == ["snap.qcow2"]
