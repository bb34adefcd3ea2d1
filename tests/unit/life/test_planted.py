"""What somebody has put among our files: whatever cleans, sweeps, prunes or removes leaves it as it
is, whatever its name, and goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from quicksand.base.errors import PathError, QuicksandError
from quicksand.base.paths import Paths, make_private_dir, paths
from quicksand.base.staging import sweep_staging
from quicksand.disks.images.image_store import ImageStore
from quicksand.life.cleaning import Cleaner, Waste
from quicksand.life.sandbox_removal import SandboxTrash, remove_sandbox
from quicksand.records.fleet_files import fleet_dir, nodes_dir, nodes_runtime
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.records.trash import trash_dir
from quicksand.saves.store import SaveStore
from quicksand.saves.workspaces import remember
from quicksand.snapshots.history import History, history_of
from quicksand.snapshots.layers import freeze_stopped
from quicksand.snapshots.verified import Verified
from quicksand.warm.templates import discard, list_templates, prune, templates_dir

from tests.unit.saves.making import publish_image
from tests.unit.snapshots.boxes import check_whole, make_base, make_box

KEY = "0123456789abcdef" * 2
ID = KEY[:12]


@pytest.fixture
def world(places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Paths]:
    """All places of ours, with nothing in them."""
    (places.data / "images").unlink()
    monkeypatch.setenv("QUICKSAND_CACHE_DIR", str(tmp_path / "cache"))
    found = paths()
    directories = [found.sandboxes, trash_dir(found), found.images, found.saves, found.runtime]
    directories += [templates_dir(found), found.cache / "initrd", found.cache / "verified"]
    directories += [found.saves / ".trash", found.data / "workspaces"]
    directories += [found.cache / name for name in ("hosts", "incoming", "builds")]
    directories += [fleet_dir(found), nodes_dir(found), nodes_runtime(found)]
    for directory in directories:
        make_private_dir(directory)
    yield found
    shutil.rmtree(found.runtime)
    shutil.rmtree(nodes_runtime(found))


@pytest.fixture
def record(world: Paths, tmp_path: Path) -> Record:
    """A stopped sandbox with a checkpoint."""
    return make_box(Registry(world), make_base(tmp_path), "box")


def names_given(world: Paths, record: Record) -> dict[Path, list[str]]:
    """Each directory in which we list names: names of the kind that we give there."""
    place = sandbox_dir(world, record.id)
    node = History(place).nodes()[0]
    return {
        world.sandboxes: [ID, f".removed-{ID}", f".importing-{ID}"],
        trash_dir(world): [ID],
        world.runtime: [ID],
        world.images: [f".removed-{ID}", f".removed-01234567-{ID}", f".importing-{ID}", "debian"],
        world.saves: [f".making-{ID}", f".gone-{ID}", f".ready-{ID}"],
        world.saves / ".trash": [ID],
        templates_dir(world): [KEY, f".making-{KEY}", f"{KEY}.lock"],
        world.cache / "initrd": [f"{KEY}.cpio", f".{KEY}.cpio.01234567", f".{KEY[:16]}"],
        world.cache / "verified": [KEY[:16]],
        world.cache / "hosts": [f".importing-{ID}"],
        world.cache / "incoming": [f"{KEY}{KEY}.part", f"{KEY}{KEY}.whole", "lock"],
        world.cache / "builds": ["debian.log"],
        nodes_dir(world): [KEY[:8]],
        nodes_runtime(world): [KEY[:8]],
        world.cache: ["accelerators.json", "qemu-versions.json"],
        world.data / "workspaces": ["of mine"],
        place.root: [".head.json.01234567", "history.lock"],
        place.layers: [f"{ID}.qcow2", f"{ID}.json", f".{ID}.qcow2.01234567"],
        place.memory: [f"{ID}.pages", f"{ID}.ram"],
        place.checkpoints / node.id: [".node.json.01234567"],
    }


def plant_directory(path: Path) -> None:
    (path / "checkpoints" / ID).mkdir(parents=True)
    (path / "checkpoints" / ID / "node.json").write_text("theirs")
    (path / "overlays").mkdir()
    (path / "file").write_text("theirs")


PLANTED: dict[str, Callable[[Path, Path], None]] = {
    "directory": lambda path, _: plant_directory(path),
    "link to a directory": lambda path, kept: path.symlink_to(kept),
    "link to nothing": lambda path, _: path.symlink_to("nowhere"),
    "FIFO": lambda path, _: os.mkfifo(path),
}


def look(*roots: Path) -> dict[str, tuple[int, int, int, bytes | str]]:
    """All below ``roots``: inode, mode, time and content of each."""
    found: dict[str, tuple[int, int, int, bytes | str]] = {}
    for root in roots:
        for path in (root, *root.rglob("*")) if not root.is_symlink() else (root,):
            was = path.lstat()
            content: bytes | str = b""
            if path.is_symlink():
                content = os.readlink(path)
            elif path.is_file():
                content = path.read_bytes()
            found[str(path)] = (was.st_ino, was.st_mode, was.st_mtime_ns, content)
    return found


def all_that_removes(world: Paths, record: Record) -> None:
    """Whatever lists names and then deletes or renames. Nothing of it may fail, or be held up."""
    registry, place = Registry(world), sandbox_dir(world, record.id)
    registry.reap()
    registry.list()
    cleaner = Cleaner(world, world.data)
    cleaner.clean(cleaner.look())
    SandboxTrash(registry).expire()
    SandboxTrash(registry).list()
    History(place).sweep()
    sweep_staging(world.images)
    SaveStore(world.saves).recover()
    SaveStore(world.saves).empty_trash([ID])
    list_templates(world)
    prune(templates_dir(world), world.engine_log, kept=0)
    (world.data / "elsewhere").mkdir(exist_ok=True)
    remember(world.data / "elsewhere", world)
    Verified(world.cache / "verified", "this")._begin()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", PLANTED)
def test_what_somebody_put_among_our_files_stays_as_it_is(
    world: Paths, record: Record, tmp_path: Path, kind: str
) -> None:
    kept, planted = tmp_path / "kept", []
    plant_directory(kept)
    for directory, names in names_given(world, record).items():
        for name in (*names, "of somebody", ".hidden"):
            path = directory / name
            if path.name != "history.lock":  # that one is a lock, and in use
                PLANTED[kind](path, kept)
                planted.append(path)
        (directory / "notes.txt").write_text("theirs")
        planted.append(directory / "notes.txt")
    before = look(kept, *planted)
    all_that_removes(world, record)
    assert look(kept, *planted) == before
    check_whole(sandbox_dir(world, record.id), History(sandbox_dir(world, record.id)).nodes()[0])


@pytest.mark.timeout(60)
async def test_what_is_not_proven_ours_is_refused_by_name_and_not_touched(
    world: Paths, record: Record, tmp_path: Path
) -> None:
    registry, trash = Registry(world), SandboxTrash(Registry(world))
    image = publish_image(world)
    stranger, thrown = image.root.parent / "theirs", trash_dir(world) / ID
    for path in (stranger, thrown, templates_dir(world) / KEY):
        plant_directory(path)
    before = look(stranger, thrown, templates_dir(world) / KEY)
    with pytest.raises(PathError, match="was not removed"):
        trash.empty([ID])
    with pytest.raises(PathError, match="was not removed"):
        trash.restore(ID)
    with pytest.raises(PathError, match="was not removed"):
        discard(templates_dir(world) / KEY)
    ImageStore(world.images).remove(image.name)
    assert not image.root.exists()
    assert look(stranger, thrown, templates_dir(world) / KEY) == before
    assert registry.strangers()[thrown]
    with pytest.raises(QuicksandError):
        await remove_sandbox(registry, ID, now=True, stop=True)
    assert look(stranger, thrown, templates_dir(world) / KEY) == before


def test_one_that_cannot_be_removed_keeps_no_other_in_the_trash(
    world: Paths, record: Record
) -> None:
    registry = Registry(world)
    trash = SandboxTrash(registry)
    trash.put(record.id)
    plant_directory(trash_dir(world) / ID)
    with pytest.raises(PathError, match="was not removed"):
        trash.empty([ID, record.id])
    assert not (trash_dir(world) / record.id).exists()
    assert Waste.TRASH not in {heap.kind for heap in Cleaner(world, world.data).look()}


def test_a_stray_directory_among_layers_is_in_no_clones_way(world: Paths, record: Record) -> None:
    registry = Registry(world)
    place = sandbox_dir(world, record.id)
    stray = place.layers / f"{ID}.qcow2"
    stray.mkdir()
    (place.layers / "of mine").mkdir()
    layers = freeze_stopped(history_of(registry, record.id), "box")
    history_of(registry, record.id).sweep()
    assert layers
    assert stray.is_dir()


def test_what_is_ours_still_goes(world: Paths, record: Record) -> None:
    """The same names, made by us."""
    place = sandbox_dir(world, record.id)
    left = [world.cache / "initrd" / name for name in (f"{KEY}.cpio", f".{KEY}.cpio.01234567")]
    left += [world.cache / "initrd" / f".{KEY[:16]}", world.cache / "accelerators.json"]
    left += [place.root / ".head.json.01234567", place.layers / f"{ID}.qcow2"]
    left += [place.layers / f".{ID}.qcow2.01234567", place.memory / f"{ID}.pages"]
    for path in left:
        path.write_text("ours")
    all_that_removes(world, record)
    assert [path for path in left if path.exists()] == []
