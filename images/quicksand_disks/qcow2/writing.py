"""Writes qcow2 headers and empty overlays (QEMU docs/interop/qcow2.txt). Every start needs an
overlay, and running qemu-img for it would cost 20 ms."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

from quicksand_disks.errors import ImpossibleDiskError, LongNameError
from quicksand_disks.qcow2.layers import COMPRESSED, SECTOR

CLUSTER_BITS = 16
CLUSTER = 1 << CLUSTER_BITS
L2_COVERS = CLUSTER * (CLUSTER // 8)
"""Bytes of the disk that one second-level table maps."""

SIZE_MAX = (CLUSTER // 8) * L2_COVERS
"""Bytes that a first-level table of one cluster can map."""

BACKING_NAME_MAX = 1023
"""Bytes of the backing file's name; QEMU opens no image with a longer one."""

REFCOUNT_ORDER = 4
"""Refcounts have 2 ** 4 bits."""

_MAGIC = 0x514649FB
_VERSION = 3
_HEADER_LENGTH = 104
_EXT_BACKING_FORMAT = 0xE2792ACA


def create_overlay(path: Path, *, backing: Path | None, size: int) -> None:
    """Write an empty overlay of ``size`` bytes over ``backing``; with None, a disk of zeros.

    The name of the backing file is for people and tools, and is not looked at.
    Raises ImpossibleDiskError, OSError naming ``path``.
    """
    if not 0 < size <= SIZE_MAX:
        raise ImpossibleDiskError(f"a disk of {size} bytes is not possible", hint="the most is 4T")
    size = -(-size // 512) * 512
    header = encode_header(
        size,
        encode_backing(backing),
        l1=(-(-size // L2_COVERS), 3 * CLUSTER),
        refcounts=(CLUSTER, 1),
    )
    with naming(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.pwrite(descriptor, header, 0)
            os.pwrite(descriptor, struct.pack(">Q", 2 * CLUSTER), CLUSTER)
            # Clusters 0 to 3 (header, refcount table, refcount block, L1) are in use, once each.
            os.pwrite(descriptor, struct.pack(">4H", 1, 1, 1, 1), 2 * CLUSTER)
            os.ftruncate(descriptor, 4 * CLUSTER)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)


def encode_backing(backing: Path | None) -> bytes:
    """Encode the name of a backing file. Raises LongNameError if it is too long."""
    name = b"" if backing is None else os.fsencode(backing)
    if len(name) > BACKING_NAME_MAX:
        raise LongNameError(
            f"the path {backing} is longer than the {BACKING_NAME_MAX} bytes of qcow2"
        )
    return name


def encode_header(
    size: int,
    backing: bytes,
    *,
    l1: tuple[int, int],
    refcounts: tuple[int, int],
    cluster_bits: int = CLUSTER_BITS,
) -> bytes:
    """Encode the header of a disk of ``size`` bytes, with its extensions and the backing name.

    ``l1`` is the number of first-level entries and their offset in bytes; ``refcounts`` is the
    offset in bytes of the refcount table and its number of clusters.
    """
    extensions = struct.pack(">II", 0, 0)
    if backing:
        kind = struct.pack(">II", _EXT_BACKING_FORMAT, 5) + b"qcow2".ljust(8, b"\0")
        extensions = kind + extensions
    header = struct.pack(
        ">IIQIIQIIQQIIQQQQII",
        _MAGIC,
        _VERSION,
        _HEADER_LENGTH + len(extensions) if backing else 0,
        len(backing),
        cluster_bits,
        size,
        0,  # no encryption
        *l1,
        *refcounts,
        0,  # no snapshots, and no table of them
        0,
        0,  # no features: incompatible, compatible, autoclear
        0,
        0,
        REFCOUNT_ORDER,
        _HEADER_LENGTH,
    )
    return header + extensions + backing


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make an OSError name ``path``, whatever was being done for it."""
    try:
        yield
    except OSError as error:
        error.filename, error.filename2 = os.fspath(path), None
        raise


def _sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


COPIED = 1 << 63
"""Bit of an entry: the refcount of its cluster is exactly 1."""

_L1_AT = 2


@contextlib.contextmanager
def new_file(target: Path) -> Iterator[int]:
    """Open a file that becomes ``target`` if the block succeeds and vanishes otherwise. Yields its
    descriptor. Raises OSError naming ``target``."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    descriptor, published = -1, False
    try:
        with naming(target):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(temporary, flags, 0o600)
        yield descriptor
        with naming(target):
            os.fsync(descriptor)
            published = not target.exists()
            temporary.replace(target)
            _sync_directory(target.parent)
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
    """Fills an empty file. `finish` makes it an image. Methods raise OSError naming the target."""

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
        small files have large tables. Raises LongNameError if that of ``backing`` is too long."""
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
        with naming(self._target):
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
        with naming(self._target):
            while left:
                written = os.pwrite(self._descriptor, left, place)
                left, place = left[written:], place + written


def _numbers(values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}Q", *values)
