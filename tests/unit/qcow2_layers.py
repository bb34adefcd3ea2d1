"""qcow2 files for tests, of any cluster size, with every kind of cluster."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from quicksand_disks.qcow2.layers import Chain, Layer

COPIED = 1 << 63
COMPRESSED = 1 << 62


@dataclass(frozen=True)
class Made:
    """A layer to be made. (Its refcounts are not kept: nobody writes to it again.)"""

    size: int
    bits: int
    clusters: Mapping[int, bytes | None]
    """By number, in clusters of this layer: content, or None for one that is marked as zeros."""
    packed: bool = False
    """Whether its clusters are compressed."""
    backwards: bool = False
    """Whether the last one comes first in the file."""

    @property
    def cluster(self) -> int:
        return 1 << self.bits

    def lay_over(self, below: bytes) -> bytes:
        """What the disk is then."""
        disk = bytearray(below[: self.size].ljust(self.size, b"\0"))
        for number, content in self.clusters.items():
            start = number * self.cluster
            data = (content or b"").ljust(self.cluster, b"\0")
            if start < self.size:
                disk[start : start + self.cluster] = data[: self.size - start]
        return bytes(disk)


def write_layer(path: Path, made: Made) -> Path:
    cluster, entries = made.cluster, made.cluster // 8
    count = -(-made.size // (cluster * entries))
    l1_clusters = -(-count // entries)
    body = bytearray()
    first = 2 + l1_clusters
    tables: dict[int, list[int]] = {}
    for number in sorted(made.clusters, reverse=made.backwards):
        if number * cluster >= made.size:
            continue
        table = tables.setdefault(number // entries, [0] * entries)
        content = made.clusters[number]
        place = first * cluster + len(body)
        if content is None:
            table[number % entries] = 1
        elif made.packed and (packed := _deflate(content.ljust(cluster, b"\0"))) is not None:
            further = (place + len(packed) - 1) // 512 - place // 512
            table[number % entries] = COMPRESSED | further << (62 - (made.bits - 8)) | place
            body += packed
        else:
            body += bytes(-len(body) % cluster)
            table[number % entries] = (first * cluster + len(body)) | COPIED
            body += content.ljust(cluster, b"\0")
    body += bytes(-len(body) % cluster)
    l1 = [0] * count
    for number, table in tables.items():
        l1[number] = (first * cluster + len(body)) | COPIED
        body += struct.pack(f">{entries}Q", *table)
    fields = (0x514649FB, 3, 0, 0, made.bits, made.size, 0, count, 2 * cluster, cluster, 1, 0, 0)
    head = struct.pack(">IIQIIQIIQQIIQQQQIIQ", *fields, 0, 0, 0, 4, 112, 0)
    l1_bytes = struct.pack(f">{count}Q", *l1).ljust(l1_clusters * cluster, b"\0")
    path.write_bytes(head.ljust(2 * cluster, b"\0") + l1_bytes + body)
    return path


def _deflate(content: bytes) -> bytes | None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = packer.compress(content) + packer.flush()
    return packed if len(packed) < len(content) else None


def read_disk(*paths: Path, size: int | None = None) -> bytes:
    """All of the disk that these layers are, from the bottom to the top."""
    layers = [Layer(path) for path in paths]
    try:
        return Chain(layers).read(0, layers[-1].size if size is None else size)
    finally:
        for layer in layers:
            layer.close()


def entries_of(path: Path) -> dict[int, int]:
    """The second-level entries that are not 0, by number of the cluster."""
    data = path.read_bytes()
    bits, count = struct.unpack_from(">I", data, 20)[0], struct.unpack_from(">I", data, 36)[0]
    (l1_at,) = struct.unpack_from(">Q", data, 40)
    found = {}
    per_table = (1 << bits) // 8
    for number, (place,) in enumerate(struct.iter_unpack(">Q", data[l1_at : l1_at + 8 * count])):
        if place := place & ~COPIED:
            values = struct.unpack_from(f">{per_table}Q", data, place)
            found.update({number * per_table + at: v for at, v in enumerate(values) if v})
    return found


def noise(length: int, seed: int = 1) -> bytes:
    """Does not compress."""
    return random.Random(seed).randbytes(length)


def check(found: Mapping[str, object]) -> None:
    """What qemu-img check says: nothing is wrong."""
    assert found["check-errors"] == 0
    assert not {"corruptions", "leaks"} & found.keys()
