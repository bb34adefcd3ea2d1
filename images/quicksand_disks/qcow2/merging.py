"""Finds the layer of a disk that decides each cluster, and where its base shows through."""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from quicksand_disks.errors import DiskFileError, ImpossibleDiskError
from quicksand_disks.qcow2.layers import COMPRESSED, OFFSET_MASK, SECTOR, ZERO, Chain, Layer
from quicksand_disks.qcow2.writing import CLUSTER, L2_COVERS, Qcow2Writer, new_file
from quicksand_disks.qcow2_header import VIRTUAL_SIZE_MAX
from quicksand_disks.reading_limits import Cache

NOTHING = 0
"""No layer has the cluster, so the base shows."""

MIXED = 2
"""Several layers have parts of the cluster, or the disk ends within it. Places in a file are always
larger than `NOTHING`, `ZERO` and this."""


class Source(Layer):
    """A layer that is read once, from its start to its end. Its methods raise DiskFileError."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        # There may be hundreds of layers, so each caches one decompressed cluster.
        self._unpacked = Cache(self.cluster)

    def check(self) -> None:
        """Refuse first-level entries that share a table: a small file could claim a huge disk."""
        places = [self._l1_entry(number) for number in range(len(self._l1) // 8)]
        if any(many > 1 for place, many in Counter(places).items() if place):
            raise self._bad("two parts of the disk have one second-level table")

    def check_plain(self, clusters: int) -> None:
        """Refuse more uncompressed clusters than the file has room for."""
        if (clusters - 1) * self.cluster >= self._file_size:
            raise self._bad("clusters of the disk have one place in the file")

    def mapped(self) -> Iterator[tuple[int, int]]:
        """Yield the range of the disk, (start, end) in bytes, that each second-level table maps."""
        covers = self._table_entries * self.cluster
        for number in range(len(self._l1) // 8):
            if self._l1_entry(number):
                yield number * covers, (number + 1) * covers

    def clusters(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the clusters between two bytes of the disk that this layer allocates: number, and
        place in the file, `ZERO`, or the entry of a compressed cluster."""
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
        """Read clusters that follow each other in the file."""
        if place % self.cluster:
            raise self._bad("a cluster is not aligned")
        length = count * self.cluster
        data = self._read(place, length)
        if length - len(data) >= self.cluster:
            raise self._bad("a cluster lies beyond its end")
        # QEMU may leave out zeros at the end of the last cluster.
        return data.ljust(length, b"\0")


class _NoBase(Layer):
    """Stands for a base that was not given: reading it raises DiskFileError."""

    def __init__(self) -> None:
        self.size = VIRTUAL_SIZE_MAX
        self.cluster = CLUSTER

    def read(self, offset: int, length: int) -> bytes | None:
        raise DiskFileError(
            f"at {offset} a layer covers a part of a cluster, and the base is not given",
            hint="give the files of the base",
        )


@dataclass(frozen=True, slots=True)
class Part:
    """The 512 MiB of the disk that one second-level table maps."""

    number: int
    entries: list[int]
    """For each cluster its place in the owner's file, the owner's entry for a compressed one,
    `NOTHING`, `ZERO` or `MIXED`."""
    owners: list[Source | None]

    @property
    def start(self) -> int:
        """The first byte on the disk."""
        return self.number * L2_COVERS

    def filled(self) -> int:
        """Return the number of clusters that have to be read."""
        return len(self.entries) - self.entries.count(NOTHING) - self.entries.count(ZERO)


class Visible:
    """Layers above a base, cut into clusters of 64 KiB. Its methods raise DiskFileError."""

    def __init__(self, layers: Sequence[Source], below: Sequence[Layer], *, size: int) -> None:
        """``below`` is the base. Beyond the highest layer the disk, of ``size`` bytes, is zeros."""
        self.size = -(-size // SECTOR) * SECTOR
        """Bytes of the disk."""
        self._layers = layers
        self._shown = below[-1].size if below else 0
        """The byte from which on the base does not show."""
        self._disk = Chain([*below, *layers])
        all_parts = range(-(-self.size // L2_COVERS))
        self._numbers = sorted(set().union(*self._candidates()).intersection(all_parts))

    def parts(self) -> Iterator[Part]:
        """Yield the parts in which a layer has something, ascending."""
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
        """Return the number of clusters to read in all parts. Also raises DiskFileError if a layer
        claims to hold more than its file can."""
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
        """Read a cluster of the disk, with zeros beyond its end."""
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
        """Hide, beyond the end of a layer, everything below it."""
        at, within = divmod(max(0, end - part.start), CLUSTER)
        entries = part.entries
        if at < len(entries) and within:
            if entries[at] > ZERO or (entries[at] == NOTHING and end < self._shown):
                entries[at] = MIXED
            at += 1
        # Beyond the end of the base nothing could show through, so no zero entries are needed.
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
    """Open the files, each list from the lowest layer up. With ``base`` None, reading a cluster
    that needs the base fails. Raises DiskFileError."""
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


PIECE_CLUSTERS = 64
"""Clusters that are read and written in one step: 4 MiB."""

DEFLATE_WINDOW = -12
"""As in QEMU (block/qcow2-threads.c): raw deflate with a window of 4 KiB."""

DEFLATE_MEMORY = 9
THREADS_MAX = 8
_ZEROS = bytes(CLUSTER)

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total."""

Store = Callable[[memoryview], list[int]]
"""Writes whole clusters and returns their table entries."""


def write_merged(
    layers: Sequence[Path],
    target: Path,
    *,
    backing: Path | None,
    base: Sequence[Path] = (),
    size: int | None = None,
    compress: bool = False,
    hide_base: bool = False,
    progress: Progress | None = None,
) -> None:
    """Merge ``layers``, the lowest first, into one layer above their base.

    ``backing`` is the name of the base in the header; without it and ``base`` the result is a
    complete disk. ``base`` lists the base's own files: they are read only where a layer covers part
    of a 64 KiB cluster (because its clusters are smaller, or it ends there), and zeros beyond their
    end are not stored. ``size`` is in bytes; beyond the highest layer it adds zeros. ``hide_base``
    makes the disk read as zeros wherever no layer has data.

    ``target`` appears, or is replaced, only when it is whole; a failure leaves nothing else.
    Raises DiskFileError naming a damaged layer, or if ``base`` is missing and needed,
    ImpossibleDiskError, OSError naming ``target``.
    """
    if not layers:
        raise ImpossibleDiskError("there are no layers to merge")
    if size is not None and not 0 < size <= VIRTUAL_SIZE_MAX:
        raise ImpossibleDiskError(f"a disk of {size} bytes is not possible")
    known = None if backing is not None and not base and not hide_base else base
    nothing = ZERO if hide_base else NOTHING
    with open_visible(layers, known, size=size) as disk:
        total = disk.filled() * CLUSTER
        with new_file(target) as descriptor:
            out = Qcow2Writer(descriptor, target, size=disk.size, backing=backing)
            with _deflating(out) if compress else contextlib.nullcontext(out.add_clusters) as store:
                done = 0
                for part in disk.parts():
                    table = [ZERO if entry == ZERO else nothing for entry in part.entries]
                    for at, data in _pieces(disk, part):
                        entries = _store(data, store)
                        table[at : at + len(entries)] = entries
                        done += len(data)
                        if progress is not None:
                            progress(done, total)
                    out.add_table(part.number, table)
                if hide_base:
                    out.add_missing_tables(ZERO)
            out.finish()


def _pieces(disk: Visible, part: Part) -> Iterator[tuple[int, bytes]]:
    """Read the clusters of ``part`` that layers hold: (number in the part, content from there)."""
    at = 0
    while at < len(part.entries):
        if part.entries[at] in (NOTHING, ZERO):
            at += 1
            continue
        data = _read(disk, part, at)
        yield at, data
        at += len(data) // CLUSTER


def _read(disk: Visible, part: Part, at: int) -> bytes:
    """Read cluster ``at`` of the part, with the next ones if they follow it in its file."""
    place, owner = part.entries[at], part.owners[at]
    if place == MIXED or place & COMPRESSED or owner is None:
        return disk.read(part.start + at * CLUSTER)
    count = 1
    for number in range(at + 1, min(at + PIECE_CLUSTERS, len(part.entries))):
        if part.owners[number] is not owner or part.entries[number] != place + count * CLUSTER:
            break
        count += 1
    return owner.read_run(place, count)


def _store(data: bytes, store: Store) -> list[int]:
    """Write clusters except those of zeros, and return the entries of all."""
    entries: list[int] = []
    view = memoryview(data)
    for is_zero, run in itertools.groupby(
        range(0, len(data), CLUSTER), lambda start: data.startswith(_ZEROS, start)
    ):
        starts = list(run)
        if is_zero:
            entries += [ZERO] * len(starts)
        else:
            entries += store(view[starts[0] : starts[-1] + CLUSTER])
    return entries


@contextlib.contextmanager
def _deflating(out: Qcow2Writer) -> Iterator[Store]:
    with ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1)) as pool:

        def store(data: memoryview) -> list[int]:
            clusters = [data[at : at + CLUSTER] for at in range(0, len(data), CLUSTER)]
            entries: list[int] = []
            for cluster, packed in zip(clusters, pool.map(_deflate, clusters), strict=True):
                if len(packed) < CLUSTER:
                    entries.append(out.add_compressed(packed))
                else:
                    entries += out.add_clusters(cluster)
            return entries

        yield store


def _deflate(cluster: memoryview) -> bytes:
    packer = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, DEFLATE_WINDOW, DEFLATE_MEMORY
    )
    return packer.compress(cluster) + packer.flush()
