"""What is to be seen of each layer of a disk from above, and what of its base."""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.diskdiff.bounds import Cache
from quicksand.diskdiff.chain import Chain
from quicksand.diskdiff.layer import COMPRESSED, OFFSET_MASK, SECTOR, ZERO, Layer
from quicksand.errors import ImageError
from quicksand.images.overlay import CLUSTER, L2_COVERS
from quicksand.images.qcow2 import VIRTUAL_SIZE_MAX

NOTHING = 0
"""No layer has the cluster: the base is to be seen."""

MIXED = 2
"""More than one layer has a part of it, or it is cut off. (`ZERO` and these are no places.)"""


class Source(Layer):
    """A layer that is read once, from its start to its end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # There may be hundreds of them: one table and one unpacked cluster each will do.
        self._tables = Cache(self.cluster)
        self._unpacked = Cache(self.cluster)

    def check(self) -> None:
        """Refuse first-level entries that lead to one table: a small file would be a huge disk."""
        places = [self._l1_entry(number) for number in range(len(self._l1) // 8)]
        if any(many > 1 for place, many in Counter(places).items() if place):
            raise self._bad("two parts of the disk have one second-level table")

    def check_plain(self, clusters: int) -> None:
        """Refuse as many plain clusters as its file has no places for."""
        if (clusters - 1) * self.cluster >= self._file_size:
            raise self._bad("clusters of the disk have one place in the file")

    def mapped(self) -> Iterator[tuple[int, int]]:
        """From where to before where on the disk each of its second-level tables counts."""
        covers = self._table_entries * self.cluster
        for number in range(len(self._l1) // 8):
            if self._l1_entry(number):
                yield number * covers, (number + 1) * covers

    def clusters(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Its clusters between two bytes of the disk for which no layer below counts: number, and
        the place in the file, or `ZERO`, or a compressed cluster's entry. Raises ImageError."""
        first, last = start // self.cluster, -(-min(end, self.size) // self.cluster)
        for number in range(first // self._table_entries, -(-last // self._table_entries)):
            if (table := self._table(number)) is None:
                continue
            before = number * self._table_entries
            low, high = max(first, before), min(last, before + self._table_entries)
            values = struct.unpack_from(f">{high - low}Q", table, 8 * (low - before))
            for cluster, value in enumerate(values, low):
                if value and (entry := self._meaning(value)):
                    yield cluster, entry

    def _meaning(self, entry: int) -> int:
        if entry & COMPRESSED:
            return entry
        if entry & ZERO and self._has_zero_flag:
            return ZERO
        return entry & OFFSET_MASK

    def read_run(self, place: int, count: int) -> bytes:
        """Clusters that follow each other in the file. Raises ImageError."""
        if place % self.cluster:
            raise self._bad("a cluster is not aligned")
        length = count * self.cluster
        data = self._read(place, length)
        if length - len(data) >= self.cluster:
            raise self._bad("a cluster lies beyond its end")
        # QEMU leaves the last one's end out where it is zeros.
        return data.ljust(length, b"\0")


class _NoBase(Layer):
    """In place of a base that was not given."""

    def __init__(self) -> None:
        self.size = VIRTUAL_SIZE_MAX
        self.cluster = CLUSTER

    def read(self, offset: int, length: int) -> bytes | None:
        raise ImageError(
            f"at {offset} a layer covers a part of a cluster, and the base is not given",
            hint="give the files of the base",
        )


@dataclass(frozen=True, slots=True)
class Part:
    """What one second-level table maps: 512 MiB of the disk."""

    number: int
    entries: list[int]
    """For each cluster its place in the owner's file, or an entry of its that is compressed,
    `NOTHING`, `ZERO` or `MIXED`."""
    owners: list[Source | None]

    @property
    def start(self) -> int:
        """Byte of the disk."""
        return self.number * L2_COVERS

    def filled(self) -> int:
        """Clusters that have to be read."""
        return len(self.entries) - self.entries.count(NOTHING) - self.entries.count(ZERO)


class Visible:
    """Layers above a base, in clusters of 64 KiB whatever their own are."""

    def __init__(self, layers: Sequence[Source], below: Sequence[Layer], *, size: int) -> None:
        """``below`` is the base. A disk that is larger than the highest layer has zeros there."""
        self.size = -(-size // SECTOR) * SECTOR
        """Bytes of disk."""
        self._layers = layers
        self._shown = below[-1].size if below else 0
        """Where nothing of the base is to be seen any more."""
        self._disk = Chain([*below, *layers])
        all_parts = range(-(-self.size // L2_COVERS))
        self._numbers = sorted(set().union(*self._candidates()).intersection(all_parts))

    def parts(self) -> Iterator[Part]:
        """Those of which a layer has something, ascending. Raises ImageError."""
        for number in self._numbers:
            part = self._part(number)
            if any(part.entries):
                yield part

    def _candidates(self) -> Iterator[range]:
        for layer in self._layers:
            for start, end in layer.mapped():
                yield range(start // L2_COVERS, -(-end // L2_COVERS))
            if layer.size < self.size:
                yield range(layer.size // L2_COVERS, -(-self._shown // L2_COVERS))

    def filled(self) -> int:
        """Clusters that have to be read, of all parts. Raises ImageError, also where layers claim
        to hold more than their files do."""
        total, plain = 0, Counter[Source]()
        for part in self.parts():
            total += part.filled()
            plain.update(
                owner
                for owner, entry in zip(part.owners, part.entries, strict=True)
                if owner is not None and entry > MIXED and not entry & COMPRESSED
            )
        for owner, clusters in plain.items():
            owner.check_plain(clusters)
        return total

    def read(self, offset: int) -> bytes:
        """A cluster of the disk, with zeros beyond its end. Raises ImageError."""
        data = self._disk.read(offset, min(CLUSTER, self.size - offset))
        return data.ljust(CLUSTER, b"\0")

    def _part(self, number: int) -> Part:
        start = number * L2_COVERS
        count = -(-min(L2_COVERS, self.size - start) // CLUSTER)
        part = Part(number, [NOTHING] * count, [None] * count)
        for layer in self._layers:
            _lay_over(part, layer)
            if layer.size < self.size:
                self._hide(part, layer.size)
        if start + count * CLUSTER > self.size and part.entries[-1] > ZERO:
            part.entries[-1] = MIXED
        return part

    def _hide(self, part: Part, end: int) -> None:
        """A layer ends there: beyond it is nothing of what is below."""
        at, within = divmod(max(0, end - part.start), CLUSTER)
        entries = part.entries
        if at < len(entries) and within:
            if entries[at] > ZERO or (entries[at] == NOTHING and end < self._shown):
                entries[at] = MIXED
            at += 1
        # Zeros that nothing shows through need no entries.
        shown = min(len(entries), max(at, -(-(self._shown - part.start) // CLUSTER)))
        entries[at:] = [ZERO] * (shown - at) + [NOTHING] * (len(entries) - max(at, shown))


def _lay_over(part: Part, layer: Source) -> None:
    end = part.start + len(part.entries) * CLUSTER
    if layer.cluster == CLUSTER:
        first = part.start // CLUSTER
        for cluster, entry in layer.clusters(part.start, end):
            part.entries[cluster - first] = entry
            part.owners[cluster - first] = layer
        return
    for cluster, _ in layer.clusters(part.start, end):
        low = cluster * layer.cluster
        for at in range(low, min(low + layer.cluster, end), min(layer.cluster, CLUSTER)):
            part.entries[(at - part.start) // CLUSTER] = MIXED


@contextlib.contextmanager
def open_visible(
    layers: Sequence[Path], base: Sequence[Path] | None, *, size: int | None
) -> Iterator[Visible]:
    """Open the files, each list from the bottom to the top. ``base`` is None where it is not known:
    reading a cluster fails that needs it. Raises ImageError."""
    with contextlib.ExitStack() as stack:
        below = [stack.enter_context(contextlib.closing(Layer(path))) for path in base or ()]
        opened = [stack.enter_context(contextlib.closing(Source(path))) for path in layers]
        for layer in opened:
            layer.check()
        yield Visible(
            opened,
            below if base is not None else [_NoBase()],
            size=opened[-1].size if size is None else size,
        )
