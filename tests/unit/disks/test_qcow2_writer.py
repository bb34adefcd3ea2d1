"""A qcow2 file written from front to back: its tables and refcounts are right at any size."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

from quicksand_disks.qcow2.writing import Qcow2Writer, new_file

from tests.each import each
from tests.unit.disks.test_overlay import QemuImg, qemu_img
from tests.unit.qcow2_layers import check, noise, read_disk

__all__ = ["qemu_img"]

MIB = 1024 * 1024


@each("compress", [False, True])
def test_tables_that_outgrow_a_cluster(tmp_path: Path, qemu_img: QemuImg, compress: bool) -> None:
    """With clusters of 512 bytes, of which 256 are counted by a block and 64 blocks are named by a
    cluster of their table."""
    size, target = 20 * MIB, tmp_path / "target"
    table = 512 // 8
    content = [noise(512, n % 97) if n % 5 else b"%d" % n for n in range(size // 512)]
    with new_file(target) as descriptor:
        out = Qcow2Writer(descriptor, target, size=size, cluster_bits=9)
        for number in range(len(content) // table):
            entries: list[int] = []
            for at in range(number * table, (number + 1) * table):
                if compress and at % 5 == 0:
                    entries.append(out.add_compressed(_deflated(content[at].ljust(512, b"\0"))))
                else:
                    entries += out.add_clusters(memoryview(content[at].ljust(512, b"\0")))
            out.add_table(number, entries)
        out.finish()
    (refcount_clusters,) = struct.unpack_from(">I", target.read_bytes(), 56)
    assert refcount_clusters > 1
    check(qemu_img.check(target))
    assert read_disk(target) == b"".join(piece.ljust(512, b"\0") for piece in content)


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    return packer.compress(data) + packer.flush()


@each("seed", range(16))
def test_refcounts_are_right_however_compressed_clusters_lie(
    tmp_path: Path, qemu_img: QemuImg, seed: int
) -> None:
    """Of clusters of 512 bytes; what follows the end of compressed data does not count."""
    chance = random.Random(seed)
    expected, entries, target = b"", [], tmp_path / "target"
    with new_file(target) as descriptor:
        out = Qcow2Writer(descriptor, target, size=1000 * 512, cluster_bits=9)
        for number in range(1000):
            piece = b"%03d" % number + bytes(509)
            expected += piece
            length = chance.choice((128, 256, chance.randrange(20, 512)))
            if chance.random() < seed / 20:
                entries += out.add_clusters(memoryview(piece))
            else:
                entries.append(out.add_compressed(_deflated(piece).ljust(length, b"x")))
            if len(entries) == 64:
                out.add_table(number // 64, entries)
                entries = []
        out.add_table(1000 // 64, entries)
        out.finish()
    check(qemu_img.check(target))
    assert read_disk(target) == expected


def test_a_run_of_clusters_is_split_where_refcounts_lie(tmp_path: Path, qemu_img: QemuImg) -> None:
    target, data = tmp_path / "target", noise(300 * 512)
    with new_file(target) as descriptor:
        out = Qcow2Writer(descriptor, target, size=len(data), cluster_bits=9)
        entries = out.add_clusters(memoryview(data))
        for number in range(-(-300 // 64)):
            out.add_table(number, entries[number * 64 : (number + 1) * 64])
        out.finish()
    check(qemu_img.check(target))
    assert read_disk(target) == data
