"""A full disk at the first, second, third … write of an operation: a typed error, what was there is
whole, no litter, and the next attempt works."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from quicksand.base.errors import DiskSpaceError
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.life import cloning
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.saves.boot_disk import prepare_disk
from quicksand.snapshots import image, pages, stepwise
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.history import History, Origin, import_node
from quicksand.snapshots.storing import memory_files

from tests.faults import Fault, fault
from tests.unit.snapshots.boxes import check_whole, image_of, make_base, make_box, tree
from tests.unit.snapshots.test_storing import Sandbox

__all__ = ["fault"]


def each_failure(
    fault: Fault, root: Path, attempt: Callable[[], object], look: Callable[[], None]
) -> int:
    """Let every write of ``attempt`` fail in turn, until it succeeds; returns how many failed.
    ``look`` is called after each failure."""
    for number in range(1, 1000):
        with fault.at(number, root):
            try:
                attempt()
            except DiskSpaceError:
                assert fault.struck
            else:
                assert not fault.struck, f"the failure of write {number} was not noticed"
                return number - 1
        look()
    raise AssertionError("it never succeeded")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "OVER_MIN", 3 * PAGE)
    for module in (image, pages, stepwise):
        monkeypatch.setattr(module, "CHUNK", 8 * PAGE)


# Memory


@pytest.mark.parametrize("pages_written", [1, 40], ids=["pages", "image"])
def test_storing_a_checkpoint(tmp_path: Path, fault: Fault, pages_written: int) -> None:
    box = Sandbox(SandboxDir(tmp_path / "box"))
    box.write(0, 10, 1)
    box.checkpoint()
    box.write(50, pages_written, 2)

    def attempt() -> None:
        try:
            box.checkpoint()
        except BaseException:
            # As `Capture.discard` does.
            for path in box.place.checkpoints.iterdir():
                if path.name not in box.models:
                    shutil.rmtree(path)
                    for file in memory_files(box.place, path.name):
                        file.unlink(missing_ok=True)
            raise

    before = tree(box.place.root)

    def look() -> None:
        box.check()
        assert tree(box.place.root) == before

    assert each_failure(fault, box.place.root, attempt, look) > 5
    box.check()
    assert len(box.history.nodes()) == 2


def test_removing_a_checkpoint_that_has_children(tmp_path: Path, fault: Fault) -> None:
    """It may be removed in part: then it is there, or only its children have moved."""
    box = Sandbox(SandboxDir(tmp_path / "box"))
    for number in range(3):
        box.write(number, 2, 1 + number)
        box.checkpoint()
    first, second, third = box.history.nodes()
    models = dict(box.models)
    each_failure(fault, box.place.root, lambda: box.history.remove(second), box.check)
    del models[second.id]
    box.models = models
    assert [node.id for node in box.history.nodes()] == [first.id, third.id]
    assert box.history.get(third.id).parent == first.id
    box.check()


# Disks


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return make_base(tmp_path)


@pytest.fixture
def registry(places: Paths) -> Registry:
    return Registry(places)


@pytest.mark.parametrize("other_disk", [False, True], ids=["links", "copies"])
def test_importing_a_checkpoint(
    registry: Registry, base: Path, fault: Fault, other_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (make_box(registry, base, name) for name in ("one", "two"))
    source, target = (sandbox_dir(registry.paths, record.id) for record in (one, two))
    node = History(source).nodes()[0]
    if other_disk:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(18, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
    before = tree(target.root)

    def look() -> None:
        History(target).sweep()
        if (target.checkpoints / node.id).exists():
            # The very last call failed, which was to make it lasting.
            check_whole(target, node)
        else:
            assert tree(target.root) == before
        check_whole(source, node)

    origin = Origin(place=source, node=node)
    count = each_failure(fault, registry.paths.data, lambda: import_node(origin, target), look)
    assert count > 5
    History(target).sweep()
    check_whole(target, node)


@pytest.mark.parametrize("running", [False, True], ids=["of a disk", "of a checkpoint"])
def test_making_clones(registry: Registry, base: Path, fault: Fault, running: bool) -> None:
    """All of them or none; the source stays as it was."""
    record = make_box(registry, base, "box")
    place = sandbox_dir(registry.paths, record.id)
    node = History(place).nodes()[0]
    origin = Origin(place=place, node=node) if running else None
    made: list[cloning.Embryo] = []

    def attempt() -> None:
        made.clear()
        cloning._make_all(registry, record, ["a", None], origin, (), made)

    def look() -> None:
        assert [entry.name for entry in registry.list()] == ["box"]
        names = {p.name for p in registry.paths.sandboxes.iterdir() if p.name[0] != "."}
        assert names == {record.id}
        History(place).sweep()
        check_whole(place, node)
        head = History(place).head()
        names = {f"{name}.qcow2" for name in (*head.layers, head.top)}
        names |= {f"{name}.json" for name in node.layers}
        assert names == {p.name for p in place.layers.iterdir()}
        assert len(head.layers) == 1, "each attempt makes the disk one layer deeper"

    assert each_failure(fault, registry.paths.data, attempt, look) > 20
    for embryo in made:
        clone = sandbox_dir(registry.paths, embryo.record.id)
        assert is_locked(clone.lock)
        if running:
            check_whole(clone, node)
        else:
            assert clone.layer(History(clone).head().top).exists()
        cloning.forget(registry, embryo)
    assert [entry.name for entry in registry.list()] == ["box"]


@pytest.mark.parametrize("at_a_checkpoint", [False, True], ids=["its disk", "a checkpoint"])
def test_preparing_the_disk_of_a_start(
    registry: Registry, base: Path, fault: Fault, at_a_checkpoint: bool
) -> None:
    record = make_box(registry, base, "box")
    place = sandbox_dir(registry.paths, record.id)
    node = History(place).nodes()[0]
    top = History(place).head().top
    found = image_of(base)
    at = node if at_a_checkpoint else None

    def look() -> None:
        History(place).sweep()
        head = History(place).head()
        assert top in (head.top, head.previous.top if head.previous else None)
        assert place.layer(top).exists()
        check_whole(place, node)

    count = each_failure(
        fault, registry.paths.data, lambda: prepare_disk(record, found, place, at), look
    )
    assert count > 2
    History(place).sweep()
    head = History(place).head()
    assert place.layer(head.top).exists()
    if at_a_checkpoint:
        assert head.previous is not None
        assert head.previous.top == top
        # It did not get so far as to run: what was before it counts.
        again = prepare_disk(record, found, place)
        assert again.top == top
