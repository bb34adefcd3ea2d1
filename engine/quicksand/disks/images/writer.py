"""Writes a qcow2 file from front to back (QEMU docs/interop/qcow2.txt).

::

    cluster 0               the header, written last
    cluster 1               refcounts of the file's first part
    from cluster 2          the first-level table
    then                    data and second-level tables, as they come
    start of a later part   refcounts of that part
    last                    the refcount table

A part is what one refcount block covers: 2 GiB with clusters of 64 KiB. The place of every block is
known in advance, so only one of them is in memory, however large the file becomes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from quicksand.base.files import map_os_errors, sync_dir
from quicksand.disks.diff.layer import COMPRESSED, SECTOR
from quicksand.disks.images.overlay import (
    CLUSTER_BITS,
    REFCOUNT_ORDER,
    encode_backing,
    encode_header,
)

COPIED = 1 << 63
"""Bit of an entry: the refcount of its cluster is exactly 1."""

_L1_AT = 2


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[int]:
    """Open a file that becomes ``target`` if the block succeeds and vanishes otherwise. Yields its
    descriptor. Raises DiskSpaceError, PathError."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor, published = -1, False
    try:
        with map_os_errors(target):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600)
        yield descriptor
        with map_os_errors(target):
            os.fsync(descriptor)
            published = not target.exists()
            temporary.replace(target)
            sync_dir(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
            if published:
                target.unlink(missing_ok=True)
        raise
    finally:
        if descriptor != -1:
            os.close(descriptor)


class Qcow2Writer:
    """Fills an empty file. `finish` makes it an image. Methods raise DiskSpaceError, PathError."""

    def __init__(
        self,
        descriptor: int,
        target: Path,
        *,
        size: int,
        backing: Path | None = None,
        cluster_bits: int = CLUSTER_BITS,
    ) -> None:
        """``target`` is named in errors; ``size`` is in bytes. Tests use small clusters, so that
        small files have large tables. Raises PathError if the name of ``backing`` is too long."""
        self._descriptor = descriptor
        self._target = target
        self._bits = cluster_bits
        self.cluster = 1 << cluster_bits
        self._size = size
        self._name = encode_backing(backing)
        entries = self.cluster // 8
        self._l1 = [0] * -(-size // (self.cluster * entries))
        tables = -(-len(self._l1) // entries)
        self._counts = [1] * (_L1_AT + tables)
        """Refcounts of the present part's clusters."""
        self._part_clusters = self.cluster * 8 >> REFCOUNT_ORDER
        self._part = 0
        self._end = _L1_AT + tables
        """The first free cluster."""
        self._packed = 0
        """The byte after the last compressed cluster."""

    def add_clusters(self, data: memoryview) -> list[int]:
        """Write whole clusters; return their entries for `add_table`."""
        entries: list[int] = []
        while data:
            place, count = self._allocate(len(data) >> self._bits)
            end = count << self._bits
            self._write(data[:end], place)
            entries += range(place | COPIED, (place + end) | COPIED, self.cluster)
            data = data[end:]
        return entries

    def add_compressed(self, data: bytes) -> int:
        """Write the compressed content of one cluster, shorter than a cluster, right behind the
        last one; return its entry for `add_table`."""
        room = -self._packed % self.cluster
        if len(data) <= room:
            self._counts[self._number_in_part(self._packed)] += 1
        else:
            place, _ = self._allocate(1)
            if room == 0 or place != self._packed + room:
                self._packed = place
            else:
                self._counts[self._number_in_part(self._packed)] += 1
        place = self._packed
        self._write(data, place)
        self._packed += len(data)
        further = (self._packed - 1) // SECTOR - place // SECTOR
        return COMPRESSED | further << (62 - (self._bits - 8)) | place

    def add_table(self, number: int, entries: Sequence[int]) -> None:
        """Write the second-level table ``number``."""
        place, _ = self._allocate(1)
        self._write(_numbers(entries).ljust(self.cluster, b"\0"), place)
        self._l1[number] = place | COPIED

    def add_missing_tables(self, entry: int) -> None:
        """Write tables full of ``entry`` for all clusters that have none."""
        entries = [entry] * (self.cluster // 8)
        for number in [number for number, table in enumerate(self._l1) if not table]:
            self.add_table(number, entries)

    def finish(self) -> None:
        """Write the refcount table, the first-level table and, last, the header."""
        place, count = self._place_refcount_table()
        blocks = [self._block_place(part) for part in range(self._part + 1)]
        self._write(_numbers(blocks).ljust(count << self._bits, b"\0"), place)
        self._write_counts()
        self._write(_numbers(self._l1), _L1_AT << self._bits)
        l1 = (len(self._l1), _L1_AT << self._bits)
        header = encode_header(
            self._size, self._name, l1=l1, refcounts=(place, count), cluster_bits=self._bits
        )
        self._write(header, 0)
        with map_os_errors(self._target):
            os.ftruncate(self._descriptor, self._end << self._bits)

    def _place_refcount_table(self) -> tuple[int, int]:
        """Allocate the refcount table within one part; return its place and its clusters."""
        while True:
            need = -(-8 * (self._part + 1) // self.cluster)
            if need <= self._left_in_part():
                return self._allocate(need)
            self._next_part()

    def _allocate(self, count: int) -> tuple[int, int]:
        """Allocate up to ``count`` consecutive clusters, at least one; return their place in bytes
        and their number."""
        if self._left_in_part() == 0:
            self._next_part()
        count = min(count, self._left_in_part())
        place = self._end << self._bits
        self._counts += [1] * count
        self._end += count
        return place, count

    def _left_in_part(self) -> int:
        return (self._part + 1) * self._part_clusters - self._end

    def _number_in_part(self, place: int) -> int:
        return (place >> self._bits) - self._part * self._part_clusters

    def _next_part(self) -> None:
        self._write_counts()
        self._part += 1
        self._counts = [1]
        self._end = self._part * self._part_clusters + 1
        # The old part's refcounts are written, so compressed clusters continue in the new part.
        self._packed = 0

    def _block_place(self, part: int) -> int:
        return (part * self._part_clusters or 1) << self._bits

    def _write_counts(self) -> None:
        data = struct.pack(f">{len(self._counts)}H", *self._counts)
        self._write(data.ljust(self.cluster, b"\0"), self._block_place(self._part))

    def _write(self, data: bytes | memoryview, place: int) -> None:
        left = memoryview(data)
        with map_os_errors(self._target):
            while left:
                written = os.pwrite(self._descriptor, left, place)
                left, place = left[written:], place + written


def _numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}Q", *values)
