"""From files of layers to changes, and what is said of disks that cannot be read."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from quicksand.base.errors import HistoryError
from quicksand.base.paths import Paths
from quicksand.base.threads import Stopped
from quicksand.records.registry import Registry
from quicksand.snapshots import comparison
from quicksand.snapshots.comparison import DiskFiles, with_files
from quicksand_disks.changes import FileChange
from quicksand_disks.qcow2 import create_overlay
from quicksand_disks.qcow2.layers import Layer
from quicksand_disks.qcow2.writing import CLUSTER

from tests.conftest import wait_for
from tests.unit.cli.run_cli import make_stopped
from tests.unit.disks.diff.disks import MIB, Maker, brief, fill, write_clusters
from tests.unit.disks.diff.test_layers import qemu_img

SIZE = 8 * MIB


@pytest.fixture
def layers(maker: Maker, tmp_path: Path) -> Iterator[dict[str, Layer]]:
    """A packed base, a layer with a change over it, and an empty one over that."""
    before = maker.filesystem(fill(tmp_path / "tree", {"f": b"1", "g": b"g"}), size=SIZE)
    (tmp_path / "content").write_text("22")
    write = f"write {tmp_path / 'content'} h"
    after = maker.debug(before, "rm f", write)
    (tmp_path / "raw").write_bytes(before)
    zstd = ("-c", "-o", "compression_type=zstd")
    qemu_img("convert", "-f", "raw", "-O", "qcow2", *zstd, tmp_path / "raw", tmp_path / "base")
    for name in ("changed", "empty"):
        create_overlay(tmp_path / name, backing=Path("/nowhere"), size=SIZE)
    contents = {at: after[at * CLUSTER : (at + 1) * CLUSTER] for at in range(SIZE // CLUSTER)}
    same = {at for at, data in contents.items() if data == before[at * CLUSTER :][:CLUSTER]}
    write_clusters(tmp_path / "changed", {at: contents[at] for at in contents.keys() - same})
    found = {name: Layer(tmp_path / name) for name in ("base", "changed", "empty")}
    yield found
    for layer in found.values():
        layer.close()


def files(layers: dict[str, Layer], *names: str) -> DiskFiles:
    return DiskFiles("a disk", tuple(layers[name].path for name in names))


def diff_files(
    a: DiskFiles,
    b: DiskFiles,
    layers: dict[Path, Layer],
    check: Callable[[], None] = lambda: None,
) -> list[FileChange]:
    return with_files(a, b, layers, check, lambda both: both.changes())


def by_path(layers: dict[str, Layer]) -> dict[Path, Layer]:
    return {layer.path: layer for layer in layers.values()}


def test_a_layer_tells_what_changed(layers: dict[str, Layer]) -> None:
    disks = [files(layers, *names) for names in (["base"], ["base", "changed"])]
    disks.append(files(layers, "base", "changed", "empty"))
    expected = {"/f": "removed 1 -", "/h": "added - 2"}
    assert brief(diff_files(disks[0], disks[1], by_path(layers))) == expected
    assert brief(diff_files(disks[0], disks[2], by_path(layers))) == expected
    assert diff_files(disks[1], disks[2], by_path(layers)) == []
    assert diff_files(disks[1], disks[1], by_path(layers)) == []


def test_a_disk_without_a_file_system_is_named(layers: dict[str, Layer]) -> None:
    with pytest.raises(HistoryError, match=r"a disk cannot be read: there is nothing .*/empty\)"):
        diff_files(files(layers, "base"), files(layers, "empty"), by_path(layers))


def test_a_damaged_file_system_is_named(layers: dict[str, Layer]) -> None:
    base = files(layers, "base")
    start = layers["base"].read(0, 2048)
    assert start is not None
    write_clusters(layers["empty"].path, {0: start.ljust(CLUSTER, b"\xff")})
    layers["empty"].close()
    layers["empty"] = Layer(layers["empty"].path)
    with pytest.raises(HistoryError, match=r"cannot be compared: .*/base and .*/empty\)"):
        diff_files(base, files(layers, "base", "empty"), by_path(layers))


def test_it_stops_when_nobody_waits_any_more(layers: dict[str, Layer]) -> None:
    def check() -> None:
        raise Stopped

    base = files(layers, "base")
    with pytest.raises(Stopped):
        diff_files(base, base, by_path(layers), check)


async def test_a_cancellation_waits_until_the_files_are_let_go(
    layers: dict[str, Layer], places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = make_stopped(places, "web")
    disk = files(layers, "base")
    begun, ended = Event(), Event()

    def work(
        a: DiskFiles,
        b: DiskFiles,
        opened: dict[Path, Layer],
        check: Callable[[], None],
        wanted: object,
    ) -> None:
        begun.set()
        with pytest.raises(Stopped):
            wait_for(check, what="the cancellation")
        assert opened[disk.paths[0]].read(0, 1) is not None
        ended.set()
        raise Stopped

    monkeypatch.setattr(comparison, "_find_both", lambda *_: (disk, disk))
    monkeypatch.setattr(comparison, "with_files", work)
    before = len(os.listdir("/proc/self/fd"))
    task = asyncio.create_task(comparison.diff_disks(Registry(places), record, "a", "b"))
    assert await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()
    assert len(os.listdir("/proc/self/fd")) <= before
