"""Lines of small layers stay short: the disk is the same, little is copied, and a disk that is full
or damaged only leaves them long."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from quicksand.base.errors import PathError
from quicksand.disks.images.disk_layers import create_overlay
from quicksand.records.layout import SandboxDir
from quicksand.records.nodes import new_id
from quicksand.snapshots import layers
from quicksand.snapshots.layers import AT_LEAST, add_layer, merge_layers
from quicksand_disks.qcow2.writing import CLUSTER

from tests.faults import Fault, fault
from tests.unit.disks.diff.disks import write_clusters
from tests.unit.qcow2_layers import noise, read_disk

__all__ = ["fault"]

CLUSTERS = 24
SIZE = CLUSTERS * CLUSTER


class Line:
    """A line of checkpoints' disks, and what they hold."""

    def __init__(self, root: Path) -> None:
        self.place = SandboxDir(root)
        self.place.layers.mkdir(parents=True)
        self.names: tuple[str, ...] = (new_id(),)
        create_overlay(self.place.layer(self.names[0]), backing=None, size=SIZE)
        self.model: dict[int, bytes | None] = {}

    def write(self, clusters: dict[int, bytes | None]) -> None:
        """Freeze a layer with these clusters; None is one of zeros."""
        name = new_id()
        add_layer(self.place, name, below=self.names[-1])
        write_clusters(self.place.layer(name), clusters)
        self.names = (*self.names, name)
        self.model.update(clusters)

    def merge(self) -> int:
        """Merge layers; returns how many bytes the new one takes."""
        before, self.names = self.names, merge_layers(self.place, self.names)
        new = [name for name in self.names if name not in before]
        return sum(self.place.layer(name).stat().st_size for name in new)

    def check(self) -> None:
        read = read_disk(*(self.place.layer(name) for name in self.names))
        for number in range(CLUSTERS):
            expected = self.model.get(number) or bytes(CLUSTER)
            assert read[number * CLUSTER : (number + 1) * CLUSTER] == expected


@pytest.fixture
def line(tmp_path: Path) -> Line:
    return Line(tmp_path / "box")


def test_a_long_line_stays_short_and_reads_the_same(line: Line) -> None:
    source = random.Random(1)
    written = copied = 0
    for number in range(300):
        chosen = source.sample(range(CLUSTERS), source.randrange(3))
        line.write({at: noise(CLUSTER, number) if source.random() < 0.7 else None for at in chosen})
        written += line.place.layer(line.names[-1]).stat().st_size
        copied += line.merge()
        assert len(line.names) <= 2 * AT_LEAST
        if number % 20 == 0:
            line.check()
    line.check()
    assert copied < 2 * written


def test_few_layers_stay_as_they_are(line: Line) -> None:
    for number in range(AT_LEAST - 1):
        line.write({0: noise(CLUSTER, number)})
    before = line.names
    assert line.merge() == 0
    assert line.names == before


def test_the_lowest_layer_and_large_ones_are_not_copied(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "SMALL", 3 * CLUSTER)
    monkeypatch.setattr(layers, "MERGED_MAX", AT_LEAST * 3 * CLUSTER)
    line.write({at: noise(CLUSTER, at) for at in range(20)})
    large = line.names
    for number in range(AT_LEAST):
        line.write({number: noise(CLUSTER, 100 + number)})
    assert line.merge() > 0
    assert line.names[:-1] == large
    line.check()


def test_a_missing_layer_ends_the_line(line: Line) -> None:
    for number in range(AT_LEAST + 3):
        line.write({0: noise(CLUSTER, number)})
    line.place.layer(line.names[-2]).unlink()
    assert line.merge() == 0


def test_a_damaged_layer_leaves_the_line_long(line: Line) -> None:
    for number in range(AT_LEAST):
        line.write({0: noise(CLUSTER, number)})
    line.place.layer(line.names[-3]).write_bytes(b"no layer")
    before = line.names
    assert line.merge() == 0
    assert line.names == before
    assert len(list(line.place.layers.iterdir())) == len(before)


def test_without_descriptors_the_line_stays_long(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(AT_LEAST):
        line.write({0: noise(CLUSTER, number)})

    def fail(*_: object, **__: object) -> None:
        raise PathError("too many open files")

    monkeypatch.setattr(layers, "write_merged", fail)
    before = line.names
    assert line.merge() == 0
    assert line.names == before


def test_a_full_disk_leaves_the_line_long(line: Line, fault: Fault) -> None:
    for number in range(AT_LEAST):
        line.write({number: noise(CLUSTER, number)})
    before = line.names
    for number in range(1, 100):
        with fault.at(number, line.place.root):
            line.merge()
        if not fault.struck:
            break
        assert line.names == before
        assert len(list(line.place.layers.iterdir())) == len(before)
    else:
        pytest.fail("it never succeeded")
    assert number > 2
    line.check()
