"""Verifying saves: what is whole is told whole, any changed byte is found, it can be stopped."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quicksand.diskdiff.bounds import Stopped
from quicksand.host.paths import Paths
from quicksand.images.overlay import create_overlay
from quicksand.images.store import ImageStore
from quicksand.saves import verifying
from quicksand.saves.manifest import MANIFEST, OVERLAYS, Base
from quicksand.saves.store import Save, SaveStore, load_save
from quicksand.saves.verifying import BASE, Verdict, Verifier, verify_saves

from tests.unit.diskdiff.disks import write_clusters
from tests.unit.saves.making import MIB, make_published, make_save
from tests.unit.test_store import publish

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


def verify(images: ImageStore, save: Save, *, deep: bool = True) -> Verdict:
    # As it is now.
    (verdict,) = Verifier(images, deep=deep).verify([load_save(save.root)])
    return verdict


def make_based(store: SaveStore, images: ImageStore) -> tuple[Save, Base]:
    image = publish(images)
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


def test_a_whole_save_is_whole(store: SaveStore, images: ImageStore) -> None:
    save, _ = make_based(store, images)
    for deep in (False, True):
        verdict = verify(images, save, deep=deep)
        assert (verdict.is_whole, verdict.deep) == (True, deep)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(layer=st.integers(0, 2), data=st.data())
def test_any_changed_byte_is_found(
    places: Paths, layer: int, data: st.DataObject, store: SaveStore, images: ImageStore
) -> None:
    save, _ = (
        make_based(store, images) if store.get("second") is None else (store.find("second"), 0)
    )
    path = save.root / OVERLAYS / f"{layer}.qcow2"
    offset = data.draw(st.integers(0, path.stat().st_size - 1))
    flip(path, offset)
    verdict = verify(images, save)
    flip(path, offset)
    assert not verdict.is_whole
    assert verify(images, save).is_whole


def test_a_changed_byte_of_the_base_is_found(store: SaveStore, images: ImageStore) -> None:
    save, base = make_based(store, images)
    image = images.find_version(base.name, base.digest)
    assert image is not None
    flip(image.kernel, 0)
    assert verify(images, save, deep=False).is_whole
    verdict = verify(images, save)
    assert list(verdict.problems) == [BASE]
    assert str(image.kernel) in verdict.problems[BASE]


def test_a_missing_base_is_named(store: SaveStore, images: ImageStore) -> None:
    save, base = make_based(store, images)
    shutil.rmtree(images.root)
    for deep in (False, True):
        assert str(base) in verify(images, save, deep=deep).problems[BASE]
    publish(images, content="2")
    assert "another version" in verify(images, save).problems[BASE]


def test_what_two_saves_share_is_damaged_in_both_and_read_once(
    store: SaveStore, images: ImageStore
) -> None:
    second, _ = make_based(store, images)
    first = store.find("first")
    flip(first.root / OVERLAYS / "0.qcow2", DATA)
    seen: list[tuple[int, int]] = []
    verdicts = Verifier(images, deep=True, progress=lambda *x: seen.append(x)).verify(
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


def test_a_published_save_is_read_as_a_disk(store: SaveStore, images: ImageStore) -> None:
    publish(images)
    root = make_published(store.root / "env", b"1", b"2")
    save = load_save(root)
    assert verify(images, save).is_whole
    # An entry of a table that leads nowhere.
    path = root / OVERLAYS / "1.qcow2"
    with path.open("r+b") as file:
        file.seek(4 * 65536 + 8)
        file.write((1 << 62 | 1 << 50).to_bytes(8, "big"))
    assert verify(images, save, deep=False).is_whole
    assert list(verify(images, save).problems) == ["overlays/1.qcow2"]


def test_a_save_that_cannot_be_read_has_its_manifest_named(
    store: SaveStore, images: ImageStore
) -> None:
    publish(images)
    save = make_save(store, "env", b"1")
    (save.root / MANIFEST).write_text("{")
    assert list(verify(images, save).problems) == [MANIFEST]


def test_a_save_that_goes_meanwhile_is_told(store: SaveStore, images: ImageStore) -> None:
    publish(images)
    save = make_save(store, "env", b"1")
    store.delete("env")
    (verdict,) = Verifier(images, deep=True).verify([save])
    assert list(verdict.problems) == ["overlays/0.qcow2"]


def test_links_are_not_followed(store: SaveStore, images: ImageStore, tmp_path: Path) -> None:
    publish(images)
    save = make_save(store, "env", b"1")
    overlay = save.root / OVERLAYS / "0.qcow2"
    overlay.rename(tmp_path / "moved")
    overlay.symlink_to(tmp_path / "moved")
    (verdict,) = Verifier(images, deep=True).verify([save])
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


def test_it_stops_at_once(store: SaveStore, images: ImageStore) -> None:
    save, stop, seen = make_large(store, 16 * MIB), threading.Event(), []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        stop.set()

    with pytest.raises(Stopped):
        Verifier(images, deep=True, progress=progress, stop=stop).verify([save])
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
