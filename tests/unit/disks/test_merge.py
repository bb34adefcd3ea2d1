"""Many layers as one: it reads as they do, QEMU finds it whole, and nothing half-made stays."""

from __future__ import annotations

import os
import random
import struct
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import ConfigError, DiskSpaceError, ImageError, PathError
from quicksand.disks.images.disk_headers import check_qcow2
from quicksand.disks.images.disk_layers import create_overlay, write_merged
from quicksand_disks.qcow2.writing import BACKING_NAME_MAX, CLUSTER, L2_COVERS
from quicksand_disks.qcow2_header import VIRTUAL_SIZE_MAX

from tests.conftest import examples
from tests.each import each
from tests.faults import Fault, fault
from tests.unit.disks.diff.disks import write_clusters
from tests.unit.disks.test_overlay import QemuImg, qemu_img
from tests.unit.qcow2_layers import (
    COMPRESSED,
    COPIED,
    Made,
    check,
    entries_of,
    noise,
    read_disk,
    write_layer,
)

__all__ = ["fault", "qemu_img"]

MIB = 1024 * 1024
GIB = 1024 * MIB
SIZE_MAX = 12 * CLUSTER
BACKING = Path("/the/base")


def text(length: int, seed: int = 1) -> bytes:
    """Compresses well."""
    return random.Random(seed).randbytes(100).hex().encode().ljust(300, b"-") * (length // 300 + 1)


def content(kind: int, cluster: int) -> bytes | None:
    """None, zeros, or something that compresses badly or well."""
    if kind < 2:
        return None if kind == 0 else bytes(cluster)
    return (noise if kind % 2 else text)(cluster, kind)[:cluster]


@st.composite
def layers_of(draw: st.DrawFn, bits: tuple[int, ...], sizes: st.SearchStrategy[int]) -> Made:
    size, chosen = draw(sizes), draw(st.sampled_from(bits))
    numbers = st.integers(0, (size - 1) >> chosen)
    kinds = draw(st.dictionaries(numbers, st.integers(0, 9), max_size=8))
    clusters = {number: content(kind, 1 << chosen) for number, kind in kinds.items()}
    return Made(size, chosen, clusters, packed=draw(st.booleans()), backwards=draw(st.booleans()))


ODD = layers_of((12, 16, 18), st.integers(1, SIZE_MAX // 512).map(lambda sectors: sectors * 512))
EVEN = layers_of((16,), st.integers(1, SIZE_MAX // CLUSTER).map(lambda count: count * CLUSTER))
BASE = Made(
    9 * CLUSTER + 512, 16, {number: noise(CLUSTER, number) for number in (0, 1, 2, 4, 5, 7, 8, 9)}
)


def model(layers: list[Made], size: int | None) -> bytes:
    disk = BASE.lay_over(b"")
    for made in layers:
        disk = made.lay_over(disk)
    size = len(disk) if size is None else -(-size // 512) * 512
    return disk[:size].ljust(size, b"\0")


def assert_merges(
    directory: Path, layers: list[Made], *, size: int | None, compress: bool, known: bool
) -> Path:
    base = write_layer(directory / "base", BASE)
    paths = [write_layer(directory / str(at), made) for at, made in enumerate(layers)]
    target = directory / "target"
    files = (base,) if known else ()
    write_merged(paths, target, backing=BACKING, base=files, size=size, compress=compress)
    expected = model(layers, size)
    assert check_qcow2(target, allow_backing=True).virtual_size == len(expected)
    assert read_disk(base, target) == expected
    assert (
        read_disk(base, *paths, size=len(expected))[: layers[-1].size]
        == (expected[: layers[-1].size])
    )
    return target


SIZES = st.none() | st.integers(1, SIZE_MAX + 3 * CLUSTER)


@settings(max_examples=examples(150))
@given(made=st.lists(ODD, min_size=1, max_size=5), size=SIZES, compress=st.booleans())
def test_it_reads_as_its_layers_whatever_their_sizes_and_clusters(
    made: list[Made], size: int | None, compress: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        assert_merges(Path(directory), made, size=size, compress=compress, known=True)


@settings(max_examples=examples(100))
@given(made=st.lists(EVEN, min_size=1, max_size=5), compress=st.booleans())
def test_where_clusters_fit_the_base_is_not_needed(made: list[Made], compress: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        target = assert_merges(Path(directory), made, size=None, compress=compress, known=False)
        assert expected_kinds(made) == {
            number: "zero" if entry == 1 else "data" for number, entry in entries_of(target).items()
        }


@settings(max_examples=examples(100))
@given(made=st.lists(ODD, min_size=1, max_size=5), size=SIZES)
def test_a_base_can_be_hidden(made: list[Made], size: int | None) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        paths = [write_layer(directory / str(at), layer) for at, layer in enumerate(made)]
        target = directory / "target"
        write_merged(paths, target, backing=BACKING, size=size, hide_base=True)
        disk = b""
        for layer in made:
            disk = layer.lay_over(disk)
        size = len(disk) if size is None else -(-size // 512) * 512
        expected = disk[:size].ljust(size, b"\0")
        assert read_disk(write_layer(directory / "base", BASE), target) == expected


def expected_kinds(layers: list[Made]) -> dict[int, str]:
    kinds: dict[int, str] = {}
    for made in layers:
        for number in range(SIZE_MAX // CLUSTER):
            if number * CLUSTER >= made.size:
                kinds[number] = "zero"
            elif number in made.clusters:
                kinds[number] = "data" if any(made.clusters[number] or b"") else "zero"
    last = layers[-1].size // CLUSTER
    return {number: kind for number, kind in kinds.items() if number < last}


@each("seed", range(12))
def test_qemu_finds_it_whole_and_reads_the_same(
    tmp_path: Path, qemu_img: QemuImg, seed: int
) -> None:
    chance = random.Random(seed)
    layers = []
    for _ in range(4):
        size = chance.randrange(1, SIZE_MAX // 512) * 512
        bits = chance.choice((12, 16, 18))
        numbers = [n for n in range(-(-size // (1 << bits))) if n % 3 == 0]
        clusters = {n: content(chance.randrange(10), 1 << bits) for n in numbers}
        layers.append(Made(size, bits, clusters, packed=chance.random() < 0.5))
    target = assert_merges(tmp_path, layers, size=None, compress=seed % 2 == 0, known=True)
    check(qemu_img.check(target))
    qemu_img.run("rebase", "-u", "-f", "qcow2", "-F", "qcow2", "-b", str(tmp_path / "base"), target)
    qemu_img.run("convert", "-f", "qcow2", "-O", "raw", target, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == model(layers, None)


def test_layers_that_qemu_wrote_are_read(tmp_path: Path, qemu_img: QemuImg) -> None:
    paths, expected = [], b""
    for number in range(3):
        expected = noise(MIB, number) + bytes(MIB) + text(3 * MIB, number)[: 3 * MIB]
        (tmp_path / "raw").write_bytes(expected)
        paths.append(tmp_path / f"{number}")
        qemu_img.run("convert", "-f", "raw", "-O", "qcow2", "-c", tmp_path / "raw", paths[-1])
    write_merged(paths, tmp_path / "target", backing=None)
    check(qemu_img.check(tmp_path / "target"))
    assert read_disk(tmp_path / "target")[: len(expected)] == expected


def simple(directory: Path, *, size: int = 8 * CLUSTER) -> list[Path]:
    """Two layers; together: noise, zeros that hide, text and, in the end, two that nobody has."""
    low, high = directory / "low", directory / "high"
    for path in (low, high):
        create_overlay(path, backing=BACKING, size=size)
    write_clusters(low, {0: noise(CLUSTER, 1), 1: noise(CLUSTER, 2), 2: noise(CLUSTER, 3)})
    write_clusters(high, {1: None, 3: bytes(CLUSTER), 4: text(CLUSTER)[:CLUSTER], 5: b"x"})
    return [low, high]


def test_zeros_hide_the_base_and_what_nobody_has_shows_it(tmp_path: Path) -> None:
    target = tmp_path / "target"
    write_merged(simple(tmp_path), target, backing=BACKING)
    assert {number: entry == 1 for number, entry in entries_of(target).items()} == {
        0: False,
        1: True,
        2: False,
        3: True,
        4: False,
        5: False,
    }
    # Header, refcounts and their table, both levels, four clusters.
    assert target.stat().st_size == 9 * CLUSTER
    assert check_qcow2(target, allow_backing=True).backing_file == str(BACKING)


def test_compressed_clusters_lie_one_after_the_other(tmp_path: Path, qemu_img: QemuImg) -> None:
    target = tmp_path / "target"
    layers = simple(tmp_path)
    write_merged(layers, target, backing=BACKING, compress=True)
    entries = entries_of(target)
    assert [number for number, entry in entries.items() if entry & COMPRESSED] == [4, 5]
    assert all(entries[number] & COPIED for number in (0, 2))
    starts = [entries[number] & ((1 << 54) - 1) for number in (4, 5)]
    assert 0 < starts[1] - starts[0] < 1024
    assert starts[1] % 512
    check(qemu_img.check(target))
    assert read_disk(target) == read_disk(*layers)


@each("size", [L2_COVERS, L2_COVERS + 1, 4 * 1024 * GIB + 1, VIRTUAL_SIZE_MAX])
def test_large_disks(tmp_path: Path, qemu_img: QemuImg, size: int) -> None:
    low, target = tmp_path / "low", tmp_path / "target"
    write_layer(low, Made(4 * CLUSTER, 16, {1: b"start"}))
    # Nothing of the base is beyond its end: no zeros have to be kept there.
    write_merged([low], target, backing=low, base=[low], size=size)
    check(qemu_img.check(target))
    assert check_qcow2(target, allow_backing=True).virtual_size == -(-size // 512) * 512
    assert target.stat().st_size < 2 * MIB
    assert read_disk(target, size=CLUSTER + 5)[CLUSTER:] == b"start"


def test_hundreds_of_layers(tmp_path: Path) -> None:
    paths, expected = [], {}
    for number in range(300):
        expected[number % 70] = b"%03d" % number
        made = Made(GIB, 16, {number % 70: expected[number % 70]})
        paths.append(write_layer(tmp_path / str(number), made))
    before = len(os.listdir("/proc/self/fd"))
    write_merged(paths, tmp_path / "target", backing=BACKING)
    assert len(os.listdir("/proc/self/fd")) <= before
    disk = read_disk(tmp_path / "target", size=70 * CLUSTER)
    assert {at: disk[at * CLUSTER : at * CLUSTER + 3] for at in range(70)} == expected


def test_memory_does_not_grow_with_the_disk(tmp_path: Path) -> None:
    made = Made(64 * MIB, 16, {number: noise(CLUSTER, 7) for number in range(1024)})
    path = write_layer(tmp_path / "layer", made)
    for compress in (False, True):
        tracemalloc.start()
        write_merged([path], tmp_path / "target", backing=None, compress=compress)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 24 * MIB


def test_progress_goes_up_to_the_end(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    made = Made(16 * MIB, 16, {number: noise(CLUSTER, number) for number in range(0, 256, 2)})
    path = write_layer(tmp_path / "layer", made)

    def progress(done: int, total: int) -> None:
        steps.append((done, total))

    write_merged([path], tmp_path / "target", backing=BACKING, progress=progress)
    assert steps == sorted(steps)
    assert {total for _, total in steps} == {8 * MIB}
    assert steps[-1][0] == 8 * MIB


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("old", [None, b"somebody's data"])
def test_a_full_disk_at_any_write_leaves_what_was_there(
    tmp_path: Path, fault: Fault, compress: bool, old: bytes | None
) -> None:
    layers = simple(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    target = place / "target"
    before = len(os.listdir("/proc/self/fd"))
    for number in range(1, 100):
        if old is not None:
            target.write_bytes(old)
        with fault.at(number, place):
            try:
                write_merged(layers, target, backing=BACKING, compress=compress)
            except DiskSpaceError as error:
                assert str(place) in str(error)
            else:
                assert not fault.struck
                break
        assert fault.struck
        assert len(os.listdir("/proc/self/fd")) <= before
        if old is None:
            assert not list(place.iterdir())
        else:
            assert list(place.iterdir()) == [target]
            # All but a failure to make the new name last leaves the old file.
            assert target.read_bytes() == old or target.stat().st_size % CLUSTER == 0
    assert number > 8
    assert read_disk(target) == read_disk(*layers)


@each("kind", [KeyboardInterrupt, RuntimeError, OSError])
@each("compress", [False, True])
def test_an_interruption_leaves_nothing(
    tmp_path: Path, kind: type[BaseException], compress: bool
) -> None:
    layers = simple(tmp_path)
    target = tmp_path / "place" / "target"
    target.parent.mkdir()

    def progress(done: int, total: int) -> None:
        if done > CLUSTER:
            raise kind

    with pytest.raises(kind):
        write_merged(layers, target, backing=BACKING, compress=compress, progress=progress)
    assert not list(target.parent.iterdir())


def test_the_target_may_be_one_of_the_layers(tmp_path: Path) -> None:
    layers = simple(tmp_path)
    expected = read_disk(*layers)
    write_merged(layers, layers[1], backing=BACKING)
    assert read_disk(layers[1]) == expected


def test_a_layer_that_covers_a_part_of_a_cluster_needs_the_base(tmp_path: Path) -> None:
    path = write_layer(tmp_path / "fine", Made(4 * CLUSTER, 12, {1: b"part"}))
    with pytest.raises(ImageError, match="the base is not given") as caught:
        write_merged([path], tmp_path / "target", backing=BACKING)
    assert caught.value.hint
    assert [path] == list(tmp_path.iterdir())
    write_merged([path], tmp_path / "target", backing=None)
    assert read_disk(tmp_path / "target")[4096:4100] == b"part"


def test_a_damaged_layer_is_named(tmp_path: Path) -> None:
    layers = simple(tmp_path)
    with layers[1].open("r+b") as file:
        file.seek(4 * CLUSTER + 8 * 4)  # the second-level table comes after the empty overlay
        file.write(struct.pack(">Q", 5 << 40))
    with pytest.raises(ImageError, match=r"high .*beyond its end"):
        write_merged(layers, tmp_path / "target", backing=BACKING)
    with pytest.raises(ImageError, match="missing"):
        write_merged([tmp_path / "missing"], tmp_path / "target", backing=BACKING)
    assert sorted(tmp_path.iterdir()) == sorted(layers)


def test_a_small_file_that_claims_a_huge_disk_is_refused(tmp_path: Path) -> None:
    path = write_layer(tmp_path / "low", Made(2 * L2_COVERS, 16, {0: b"a", 1: b"b"}))
    data = bytearray(path.read_bytes())
    (table,) = struct.unpack_from(">Q", data, 2 * CLUSTER)
    struct.pack_into(">Q", data, 2 * CLUSTER + 8, table)
    path.write_bytes(data)
    with pytest.raises(ImageError, match=r"low .*one second-level table"):
        write_merged([path], tmp_path / "target", backing=BACKING)
    struct.pack_into(">Q", data, 2 * CLUSTER + 8, 0)
    place = table & ~COPIED
    struct.pack_into(f">{CLUSTER // 8}Q", data, place, *[3 * CLUSTER] * (CLUSTER // 8))
    path.write_bytes(data)
    with pytest.raises(ImageError, match=r"low .*one place"):
        write_merged([path], tmp_path / "target", backing=BACKING)


def test_what_is_beyond_the_end_is_not_carried_along(tmp_path: Path) -> None:
    path = write_layer(tmp_path / "low", Made(2 * CLUSTER, 16, {1: b"kept".ljust(512) + b"cut"}))
    write_merged([path], tmp_path / "target", backing=BACKING, size=CLUSTER + 512)
    assert b"kept" in (tmp_path / "target").read_bytes()
    assert b"cut" not in (tmp_path / "target").read_bytes()


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    layers, target = simple(tmp_path), tmp_path / "target"
    with pytest.raises(ConfigError, match="no layers"):
        write_merged([], target, backing=BACKING)
    for size in (0, -1, VIRTUAL_SIZE_MAX + 1):
        with pytest.raises(ConfigError, match="not possible"):
            write_merged(layers, target, backing=BACKING, size=size)
    with pytest.raises(PathError, match="1023 bytes"):
        write_merged(layers, target, backing=Path("/" + "x" * BACKING_NAME_MAX))
    with pytest.raises(PathError, match="nowhere"):
        write_merged(layers, tmp_path / "nowhere" / "target", backing=BACKING)
    assert not target.exists()


@settings(max_examples=examples(150))
@given(
    flips=st.lists(
        st.tuples(st.integers(0, 6 * CLUSTER - 1), st.binary(min_size=1, max_size=8)),
        min_size=1,
        max_size=6,
    ),
    near=st.booleans(),
)
def test_damaged_layers_are_merged_or_refused_never_anything_else(
    flips: list[tuple[int, bytes]], near: bool
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "layer")
        made = Made(4 * CLUSTER, 16, {0: b"a", 1: b"b", 2: text(CLUSTER)}, packed=True)
        data = bytearray(write_layer(path, made).read_bytes())
        for position, change in flips:
            # Mostly into the tables: header, first level, second level.
            start = position % 4096 if near else position
            data[start : start + len(change)] = change
        path.write_bytes(data)
        target = Path(directory, "target")
        try:
            write_merged([path], target, backing=None)
        except (ImageError, ConfigError):
            assert os.listdir(directory) == ["layer"]
        else:
            assert check_qcow2(target)
