"""`du`, `clean`, and what `images rm` and `images prune` leave alone."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.files import try_lock, try_named_lock, write_json
from quicksand.base.footprint import Footprint
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.removal import make_marked
from quicksand.disks.images.boot_files import start_kernel
from quicksand.disks.images.image_store import CURRENT, ImageStore
from quicksand.disks.images.stored_image import StoredImage
from quicksand.life import cleaning, image_users
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry, publish_state
from quicksand.records.sandboxes import Record
from quicksand.saves.save_manifest import OVERLAYS, Base
from quicksand.saves.store import SaveStore

from quicksand_tui.cli.main import run
from quicksand_tui.cli.output import Exit
from tests.conftest import fake_qemu
from tests.unit.base.test_files import locked_elsewhere
from tests.unit.cli.run_cli import make_stopped
from tests.unit.cli.test_templates import make_template
from tests.unit.disks.kernels import write_bzimage
from tests.unit.disks.test_store import publish
from tests.unit.records.making import RUN, machine_of
from tests.unit.records.making import make as make_running
from tests.unit.saves.making import make_save, workspace_of

Output = pytest.CaptureFixture[str]

KEY = "a" * 32
"""Of a template."""


@pytest.fixture(autouse=True)
def own(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_orphans: None) -> None:
    """Images, a cache and a current directory of the test's own."""
    for name in ("images", "qemu"):
        (places.data / name).unlink()
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(places.data.parent / "cache"))
    monkeypatch.setattr(image_users, "FRESH_S", -1.0)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


@pytest.fixture
def store(places: Paths) -> SaveStore:
    return SaveStore(places.saves)


@pytest.fixture
def images(places: Paths) -> ImageStore:
    return ImageStore(places.images)


def read_json(capsys: Output, *argv: str, code: Exit = Exit.OK) -> Any:
    capsys.readouterr()
    assert run([*argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def base_of(image: StoredImage) -> Base:
    return Base(name=image.name, version=image.version, digest=image.digest)


# du


def test_du_counts_what_is_shared_once(
    places: Paths, store: SaveStore, images: ImageStore, capsys: Output
) -> None:
    publish(images)
    first = make_save(store, "first", os.urandom(65536))
    make_save(store, "second", b"2", over=first)
    box = make_stopped(places, "box")
    layers = sandbox_dir(places, box.id).layers
    layers.mkdir()
    os.link(first.root / OVERLAYS / "0.qcow2", layers / "x.qcow2")
    store.remove("second")
    told = read_json(capsys, "du")
    kinds = {kind["kind"]: kind for kind in told["kinds"]}
    assert {name: kind["number"] for name, kind in kinds.items()} == {
        "sandboxes": 1,
        "saves": 1,
        "trash": 1,
        "images": 1,
    }
    layer = (layers / "x.qcow2").stat().st_blocks * 512
    assert {kinds[name]["shared"] for name in ("sandboxes", "saves", "trash")} == {layer}
    assert told["total"] == layer + sum(kind["own"] for kind in told["kinds"])
    assert [item["name"] for item in told["items"] if item["kind"] == "sandboxes"] == ["box"]


def test_du_follows_memory_that_lies_elsewhere(
    places: Paths, tmp_path: Path, capsys: Output
) -> None:
    place = sandbox_dir(places, make_stopped(places, "box").id)
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "pages").write_bytes(os.urandom(1 << 20))
    place.memory.symlink_to(tmp_path / "memory")
    assert read_json(capsys, "du")["total"] > 1 << 20


def test_du_shows_kinds_and_on_demand_each_thing(
    store: SaveStore, images: ImageStore, capsys: Output
) -> None:
    assert run(["du"]) == Exit.OK
    assert capsys.readouterr().out.splitlines()[-1].split() == ["total", "0", "0", "B"]
    publish(images)
    make_save(store, "large", os.urandom(65536))
    make_template(KEY, "digest")
    run(["du"])
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["WHAT", "saves", "images", "templates", "total"]
    run(["du", "--each"])
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table] == ["WHAT", "templates", "saves", "images", "total"]
    assert str(store.root / "large") in table[2]


def test_what_is_being_made_is_no_leftover(
    places: Paths, images: ImageStore, capsys: Output
) -> None:
    publish(images)
    for name in ("under-way", "killed"):
        (images.root / f".building-{name}-0123abcd").mkdir()
    lock = try_named_lock(images.root / ".under-way.lock")
    assert lock is not None
    try:
        items = read_json(capsys, "du", "--each")["items"]
    finally:
        os.close(lock)
    kinds = {item["name"]: item["kind"] for item in items}
    assert kinds[".building-under-way-0123abcd"] == "being made"
    assert kinds[".building-killed-0123abcd"] == "leftovers"


# clean


def fill_cache() -> Path:
    """What starts leave behind."""
    cache = paths().cache
    make_template(KEY, "digest")
    (cache / "initrd").mkdir()
    (cache / "initrd" / f"{KEY}.cpio").write_bytes(bytes(100_000))
    (make_marked(make_private_dir(cache / "verified") / "b007b007") / "mark").touch()
    (cache / "accelerators.json").write_text("{}")
    return cache


def test_clean_removes_what_can_be_made_again_and_nothing_else(
    places: Paths, store: SaveStore, images: ImageStore, capsys: Output
) -> None:
    cache, image = fill_cache(), publish(images)
    make_save(store, "kept", b"1")
    make_save(store, "gone", b"2")
    store.remove("gone")
    make_stopped(places, "box")
    (cache / "somebody's").write_text("not ours")
    before = Footprint(places.data, cache).size
    plan = read_json(capsys, "clean", "--dry-run")
    kinds = {heap["kind"]: len(heap["paths"]) for heap in plan["heaps"]}
    assert kinds == {"templates": 1, "boot files": 1, "verdicts": 2, "trash": 1}
    assert plan["freed"] is None
    assert (Footprint(places.data, cache).size, len(store.trash())) == (before, 1)
    done = read_json(capsys, "clean", "--yes")
    assert done["freed"] == sum(heap["frees"] for heap in plan["heaps"])
    assert done["freed"] == pytest.approx(before - Footprint(places.data, cache).size, abs=32768)
    assert [save.name for save in store.list()] == ["kept"]
    assert store.trash() == []
    assert images.get("debian") == image
    left = {p.name for p in cache.iterdir()}
    assert left <= {"somebody's", "templates", "initrd", "verified"}
    assert not list((cache / "initrd").iterdir())
    assert read_json(capsys, "clean", "--yes")["heaps"] == []


def test_clean_asks_and_does_nothing_where_nobody_can_answer(capsys: Output) -> None:
    cache = fill_cache()
    assert run(["clean"]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert "say --yes" in err
    assert out.splitlines()[-1].startswith("total")
    assert (cache / "accelerators.json").exists()
    assert run(["clean", "--json"]) == Exit.USAGE


@pytest.mark.parametrize(("answer", "code"), [(True, Exit.OK), (False, Exit.FAILURE)])
def test_clean_does_what_it_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Output, answer: bool, code: Exit
) -> None:
    cache = fill_cache()
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("click.confirm", lambda *_, **__: answer)
    assert run(["clean"]) == code
    assert (cache / "accelerators.json").exists() is not answer
    assert ("are free again" in capsys.readouterr().err) is answer


def test_clean_leaves_alone_what_a_start_needs(places: Paths, capsys: Output) -> None:
    cache = fill_cache()
    record = make_stopped(places, "box")
    lock = try_lock(sandbox_dir(places, record.id).lock)
    assert lock is not None
    try:
        done = read_json(capsys, "clean", "--yes")
    finally:
        os.close(lock)
    kept = {heap["kind"]: heap["kept"] for heap in done["heaps"] if heap["kept"]}
    assert kept == dict.fromkeys(("templates", "boot files"), "the sandbox 'box' is just starting")
    assert (cache / "initrd" / f"{KEY}.cpio").exists()
    assert (cache / "templates" / (KEY) / "pages").exists()
    assert not (cache / "accelerators.json").exists()


@pytest.mark.parametrize("goes_on", [False, True])
def test_clean_leaves_alone_what_running_sandboxes_boot_from(
    places: Paths, tmp_path: Path, capsys: Output, goes_on: bool
) -> None:
    """One that goes on has the image's kernel; a revert finds what is made of it, too."""
    cache = fill_cache()
    kernel = write_bzimage(tmp_path / "kernel")
    made, useless = start_kernel(kernel, cache), cache / "initrd" / f"{'b' * 32}.elf"
    useless.touch()
    initrd = cache / "initrd" / f"{KEY}.cpio"
    words = ("-kernel", str(kernel if goes_on else made), "-initrd", str(initrd))
    registry = Registry(places)
    record = make_running(registry)
    publish_state(machine_of(registry, record), replace(RUN, qemu_command=words))
    with locked_elsewhere(sandbox_dir(places, record.id).lock):
        read_json(capsys, "clean", "--yes")
    assert set((cache / "initrd").iterdir()) == {made, initrd}
    read_json(capsys, "clean", "--yes")
    assert not list((cache / "initrd").iterdir())


def test_clean_gives_back_what_a_start_needs_that_began_meanwhile(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = fill_cache()
    cleaner = cleaning.Cleaner(paths())
    heaps = cleaner.look()
    assert not any(heap.kept for heap in heaps)
    monkeypatch.setattr(cleaner, "_why_not", lambda: "it is starting")
    cleaner.clean(heaps)
    assert [path.name for path in (cache / "initrd").iterdir()] == [f"{KEY}.cpio"]
    assert (cache / "templates" / KEY).exists()


def test_clean_leaves_alone_a_template_in_the_making(capsys: Output) -> None:
    cache = fill_cache()
    lock = try_lock(cache / "templates" / f"{'f' * 32}.lock")
    assert lock is not None
    try:
        heaps = read_json(capsys, "clean", "--dry-run")["heaps"]
    finally:
        os.close(lock)
    assert {heap["kept"] for heap in heaps if heap["kept"]} == {"a template is being made"}


# Images


def lies_on(places: Paths, image: StoredImage, name: str = "box") -> Record:
    record = make_stopped(places, name)
    value = {**record.to_json(), "image_digest": image.digest, "chain": [str(image.disk.resolve())]}
    write_json(sandbox_dir(places, record.id).record, value)
    return record


def test_an_image_that_a_save_lies_on_is_not_removed(
    places: Paths, store: SaveStore, images: ImageStore, tmp_path: Path, capsys: Output
) -> None:
    old = publish(images, content="1")
    publish(images, content="2")
    make_save(store, "env", b"1", base=base_of(old))
    make_save(workspace_of(places, tmp_path / "there"), "far", b"1", base=base_of(old))
    assert run(["images", "rm", "debian"]) == Exit.FAILURE
    err = capsys.readouterr().err
    far = tmp_path / "there" / ".quicksand" / "sandboxes" / "far"
    assert f"the base of the saves env, {far}" in err
    assert read_json(capsys, "images", "inspect", "debian")["saves"] == ["env", str(far)]
    assert run(["saves", "rm", "env", str(far)]) == Exit.OK
    capsys.readouterr()
    assert run(["images", "rm", "debian"]) == Exit.FAILURE
    assert "is the base of env, far in the trash" in capsys.readouterr().err
    assert run(["saves", "trash", "--empty"]) == Exit.OK
    assert run(["images", "rm", "debian"]) == Exit.OK
    assert images.list() == []


def test_an_image_that_a_sandbox_lies_on_or_starts_from_is_not_removed(
    places: Paths, images: ImageStore, capsys: Output
) -> None:
    image = publish(images)
    record = lies_on(places, image)
    assert run(["images", "rm", "debian"]) == Exit.FAILURE
    assert "the base of the disks of box" in capsys.readouterr().err
    shutil.rmtree(sandbox_dir(places, record.id).root)
    # One that starts for the first time has no chain yet.
    record = make_stopped(places, "fresh")
    assert run(["images", "rm", "debian"]) == Exit.FAILURE
    assert "fresh" in capsys.readouterr().err


def test_prune_keeps_versions_that_are_needed(
    places: Paths, store: SaveStore, images: ImageStore, capsys: Output
) -> None:
    names = ("by-save", "by-trash", "by-sandbox", "by-nobody", "current")
    versions = {name: publish(images, content=name) for name in names}
    make_save(store, "env", b"1", base=base_of(versions["by-save"]))
    make_save(store, "old", b"1", base=base_of(versions["by-trash"]))
    store.remove("old")
    lies_on(places, versions["by-sandbox"])
    plan = read_json(capsys, "images", "prune", "--dry-run")
    assert [image["digest"] for image in plan["images"]] == [versions["by-nobody"].digest]
    assert len(images.versions("debian")) == 5
    done = read_json(capsys, "images", "prune")
    assert done == {**plan, "removed": True}
    assert {v.digest for v in images.versions("debian")} == {
        versions[name].digest for name in names if name != "by-nobody"
    }
    assert run(["images", "prune"]) == Exit.OK
    assert "every version is in use or needed" in capsys.readouterr().err


def test_prune_leaves_a_new_version_and_one_that_is_being_built(
    images: ImageStore, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    publish(images, content="1")
    publish(images, content="2")
    lock = try_lock(images.root / ".debian.lock")
    assert lock is not None
    try:
        assert read_json(capsys, "images", "prune")["images"] == []
    finally:
        os.close(lock)
    monkeypatch.setattr(image_users, "FRESH_S", 600.0)
    assert read_json(capsys, "images", "prune")["images"] == []
    assert len(images.versions("debian")) == 2


def test_prune_leaves_all_versions_of_an_image_that_is_damaged(
    images: ImageStore, capsys: Output
) -> None:
    publish(images, content="1")
    publish(images, content="2")
    (images.root / "debian" / CURRENT).write_text("../..")
    assert read_json(capsys, "images", "prune")["images"] == []


def test_a_damaged_version_that_a_save_needs_stays(
    store: SaveStore, images: ImageStore, capsys: Output
) -> None:
    old = publish(images, content="1")
    publish(images, content="2")
    make_save(store, "env", b"1", base=base_of(old))
    (old.root / "manifest.json").write_text("{")
    assert read_json(capsys, "images", "prune")["images"] == []


# What nobody looks after


def test_doctor_names_what_is_not_ours_and_clean_leaves_it(places: Paths, capsys: Output) -> None:
    for root in (places.runtime, places.sandboxes):
        (make_private_dir(root) / "thesis").mkdir()
        (root / "thesis" / "chapter").touch()
    run(["doctor"])
    said = capsys.readouterr().out
    assert f"{places.runtime / 'thesis'} is left alone: 'thesis' is not a name" in said
    assert f"{places.sandboxes / 'thesis'} is left alone" in said
    run(["clean", "--yes"])
    for root in (places.runtime, places.sandboxes):
        (root / "thesis" / "chapter").unlink()
        (root / "thesis").rmdir()


def test_doctor_removes_what_killed_saves_have_left(places: Paths, capsys: Output) -> None:
    left = make_marked(make_private_dir(places.saves) / ".making-0123456789ab")
    (left / "made").mkdir()
    run(["doctor"])
    assert not left.exists()


def test_an_orphan_is_named_by_doctor_and_ended_by_clean(places: Paths, capsys: Output) -> None:
    gone = places.sandboxes / "0123456789ab"
    with fake_qemu(gone) as process:
        run(["doctor"])
        told = f"QEMU {process.pid} runs on for {gone}, which is gone"
        assert told in capsys.readouterr().out
        orphans = read_json(capsys, "clean", "--dry-run")["orphans"]
        assert {"kind": "QEMU", "pid": process.pid, "of": str(gone)} in orphans
        assert process.poll() is None
        run(["clean", "--yes"])
        assert process.wait(60) == -9


def test_a_network_is_named_with_a_dash_or_as_everywhere_else(
    places: Paths, capsys: Output
) -> None:
    for word in ("mounts_only", "mounts-only"):
        assert (
            run(["run", "--network", word, "nosuch", "--no-build", "--", "true"])
            == Exit.SANDBOX_FAILED
        )
        assert "Image not found: 'nosuch'" in capsys.readouterr().err
    assert run(["run", "--network", "mounts", "nosuch"]) == Exit.USAGE
    assert "'none', 'mounts_only', 'full'" in capsys.readouterr().err
    assert run(["run", "--no-build", "alpin", "--", "true"]) == Exit.SANDBOX_FAILED
    assert "did you mean 'alpine'?" in capsys.readouterr().err
