"""Disks made of layers read as QEMU reads them, and damaged ones are refused by name."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from quicksand.base.errors import QuicksandError
from quicksand.qemu.binaries import find_binaries
from quicksand_disks import DiskFileError
from quicksand_disks.qcow2 import create_overlay
from quicksand_disks.qcow2.layers import Chain, Layer, differing
from quicksand_disks.qcow2.writing import CLUSTER

from tests.conftest import examples
from tests.each import each
from tests.unit.disks.diff.disks import MIB, close_chain, open_chain, write_clusters

CLUSTERS = 16
SIZE = CLUSTERS * CLUSTER


def qemu_img(*arguments: str | Path) -> None:
    """Ours, or the host's."""
    program, env = shutil.which("qemu-img"), {}
    try:
        binaries = find_binaries()
        if binaries.img is not None:
            program, env = str(binaries.img), dict(binaries.env)
    except QuicksandError:
        pass
    assert program is not None, "no qemu-img on this host"
    argv = [program, *map(str, arguments)]
    done = subprocess.run(
        argv, env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def sample() -> bytes:
    """Random bytes, text, zeros, and a last piece that fills no cluster."""
    chance = random.Random(1)
    return (
        chance.randbytes(MIB) + b"text" * (MIB // 4) + bytes(MIB // 2) + chance.randbytes(MIB + 512)
    )


@each("cluster", ["4k", "64k", "2M"])
@each(
    ("options", "flags"),
    [
        ("", ()),
        ("compat=0.10,", ()),
        ("compression_type=zlib,", ("-c",)),
        ("compression_type=zstd,", ("-c",)),
        ("preallocation=metadata,", ()),
    ],
)
def test_a_disk_reads_as_qemu_wrote_it(
    tmp_path: Path, cluster: str, options: str, flags: tuple[str, ...]
) -> None:
    content = sample()
    (tmp_path / "raw").write_bytes(content)
    path = tmp_path / "disk.qcow2"
    made = f"{options}cluster_size={cluster}"
    qemu_img("convert", "-f", "raw", "-O", "qcow2", *flags, "-o", made, tmp_path / "raw", path)
    chain = open_chain(path)
    assert chain.size >= len(content)
    assert chain.read(0, chain.size)[: len(content)] == content
    assert chain.read(MIB - 5, 10) == content[MIB - 5 : MIB + 5]
    assert chain.read(chain.size - 1, 3)[1:] == b"\0\0"
    close_chain(chain)


def test_a_subcluster_image_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "disk.qcow2"
    qemu_img("create", "-f", "qcow2", "-o", "extended_l2=on", path, "1M")
    with pytest.raises(DiskFileError, match=r"disk\.qcow2 .*subclusters"):
        Layer(path)


CHANGES = st.dictionaries(st.integers(0, CLUSTERS - 1), st.none() | st.integers(1, 255), max_size=6)


@settings(max_examples=60)
@given(layers=st.lists(CHANGES, min_size=1, max_size=5), fork=st.integers(0, 5), data=st.data())
def test_layers_read_as_their_model_and_only_what_is_not_shared_may_differ(
    layers: list[dict[int, int | None]], fork: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        paths, models = [], [bytearray(SIZE)]
        for number, changes in enumerate(layers):
            path = Path(directory, f"{number}.qcow2")
            create_overlay(path, backing=Path("/not/used"), size=SIZE)
            contents = {
                at: None if byte is None else bytes([byte]) * CLUSTER
                for at, byte in changes.items()
            }
            write_clusters(path, contents)
            paths.append(path)
            models.append(bytearray(models[-1]))
            for at, content in contents.items():
                models[-1][at * CLUSTER : (at + 1) * CLUSTER] = content or bytes(CLUSTER)
        # Drawn before anything is open: it may end the example.
        offset = data.draw(st.integers(0, SIZE))
        length = data.draw(st.integers(0, SIZE - offset))
        opened = [Layer(path) for path in paths]
        b = Chain(opened)
        a = Chain(opened[: max(1, min(fork, len(opened)))])
        assert b.read(offset, length) == models[-1][offset : offset + length]
        touched = differing(a, b)
        expected = {at for changes in layers[len(a.layers) :] for at in changes}
        for at in range(CLUSTERS):
            assert touched.touches(at * CLUSTER, (at + 1) * CLUSTER) == (at in expected)
        close_chain(b)


def test_beyond_the_end_of_a_shorter_layer_there_are_zeros_whatever_is_below(
    tmp_path: Path,
) -> None:
    sizes = {"low": 4, "short": 2, "top": 4}
    for name, clusters in sizes.items():
        create_overlay(tmp_path / name, backing=Path("/x"), size=clusters * CLUSTER)
    write_clusters(tmp_path / "low", dict.fromkeys(range(4), b"low " * (CLUSTER // 4)))
    chain = open_chain(*(tmp_path / name for name in sizes))
    assert chain.read(0, 4) == b"low "
    assert chain.read(2 * CLUSTER - 2, 4) == b"w \0\0"
    lowest = Chain(chain.layers[:1])
    touched = differing(lowest, chain)
    assert not touched.touches(0, 2 * CLUSTER)
    assert touched.touches(2 * CLUSTER, 2 * CLUSTER + 1)
    close_chain(chain)


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "layer.qcow2"
    create_overlay(path, backing=Path("/x"), size=SIZE)
    write_clusters(path, {0: b"a", 3: b"b"})
    return path


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (5 << 40, "beyond its end"),
        (CLUSTER + 512, "not aligned"),
        (1 << 62 | 1 << 40, "beyond its end"),
        (1 << 62 | 4096, "compressed"),
    ],
)
def test_an_entry_that_leads_nowhere_is_refused(layer: Path, entry: int, said: str) -> None:
    with layer.open("r+b") as file:
        file.seek(4 * CLUSTER)  # the second-level table comes after what create_overlay wrote
        file.write(struct.pack(">Q", entry))
    chain = open_chain(layer)
    with pytest.raises(DiskFileError, match=rf"layer\.qcow2 .*{said}"):
        chain.read(0, 10)
    close_chain(chain)


def test_a_layer_that_is_cut_off_is_refused(layer: Path) -> None:
    os.truncate(layer, 4 * CLUSTER + 100)
    chain = open_chain(layer)
    with pytest.raises(DiskFileError, match=r"layer\.qcow2 .*second-level table lies beyond"):
        chain.read(0, 10)
    close_chain(chain)


def test_a_table_that_is_used_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "layer.qcow2"
    create_overlay(path, backing=Path("/x"), size=1024 * MIB)
    write_clusters(path, {0: b"a"})
    with path.open("r+b") as file:
        file.seek(3 * CLUSTER)
        entry = file.read(8)
        file.write(entry)
    chain = open_chain(path)
    with pytest.raises(DiskFileError, match="one second-level table"):
        list(chain.layers[0].allocated())
    close_chain(chain)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.integers(0, 5 * CLUSTER - 1), st.integers(0, 255)), max_size=8))
def test_no_bytes_raise_anything_but_our_error(flips: list[tuple[int, int]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "layer")
        create_overlay(path, backing=Path("/x"), size=SIZE)
        write_clusters(path, {0: b"a", 3: None, 5: b"b"})
        content = bytearray(path.read_bytes())
        for at, value in flips:
            # Most of a table is empty: hit the beginning of one.
            content[at if at % 3 else at // CLUSTER * CLUSTER + at % 128] = value
        path.write_bytes(content)
        try:
            chain = open_chain(path)
        except DiskFileError:
            return
        try:
            chain.read(0, min(chain.size, SIZE))
            if chain.size <= 64 * SIZE:
                list(chain.layers[0].allocated())
        except DiskFileError as error:
            assert str(path) in str(error)
        close_chain(chain)
