"""A disk made of qcow2 layers."""

from __future__ import annotations

import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from quicksand_disks import zstd
from quicksand_disks.errors import DiskFileError, MalformedError, require
from quicksand_disks.qcow2_header import check_qcow2, open_regular
from quicksand_disks.reading_limits import Cache


class Ranges:
    """The union of half-open ranges (start, end), which may overlap."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in sorted(pair for pair in pairs if pair[0] < pair[1]):
            if self._ends and start <= self._ends[-1]:
                self._ends[-1] = max(self._ends[-1], end)
            else:
                self._starts.append(start)
                self._ends.append(end)

    def touches(self, start: int, end: int) -> bool:
        """Whether any number from ``start`` to before ``end`` is in the set."""
        at = bisect_right(self._ends, start)
        return at < len(self._starts) and self._starts[at] < end

    def pairs(self) -> Iterable[tuple[int, int]]:
        """The ranges, ascending and merged, so that none touches another."""
        return zip(self._starts, self._ends, strict=True)


TABLES_KEPT = 16 * 1024 * 1024
CLUSTERS_KEPT = 4 * 1024 * 1024
"""Bytes of tables, and of decompressed clusters, that each open layer caches."""

OFFSET_MASK = 0x00FF_FFFF_FFFF_FE00
"""Bits 9 to 55 of a table entry: the offset of a table or a cluster in the file."""

COMPRESSED = 1 << 62
ZERO = 1 << 0
SECTOR = 512
_ZSTD = 1
_ZEROS = bytes(4096)
"""A block of most file systems: of what reads as zeros, readers keep thousands."""

PART = 4096
"""Bytes of a part of a table."""


class Table:
    """A second-level table without its empty parts: a checkpoint's layer allocates few clusters,
    and there may be hundreds of layers."""

    def __init__(self, table: bytes) -> None:
        self._parts = [
            part if any(part) else b""
            for part in (table[at : at + PART] for at in range(0, len(table), PART))
        ]

    def __len__(self) -> int:
        """The bytes that are kept, with those of a reference for each part."""
        return sum(map(len, self._parts)) + 8 * len(self._parts)

    def entry(self, number: int) -> int:
        part, at = divmod(8 * number, PART)
        return int.from_bytes(self._parts[part][at : at + 8])


class Layer:
    """An open layer. The owner has to close it."""

    def __init__(self, path: Path) -> None:
        """Raises DiskFileError if the file is damaged or uses an unknown feature."""
        self.path = path
        header = check_qcow2(path, allow_backing=True)
        self.size = header.virtual_size
        """Bytes of the virtual disk."""
        self.cluster = 1 << header.cluster_bits
        self._bits = header.cluster_bits
        self._table_entries = self.cluster // 8
        self._tables: Cache[int, Table] = Cache(TABLES_KEPT)
        self._unpacked: Cache[int, bytes] = Cache(CLUSTERS_KEPT)
        try:
            self._file = open_regular(path)
        except OSError as error:
            raise self._bad(error.strerror) from error
        try:
            self._file_size = os.fstat(self._file).st_size
            self._read_header(header.version)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self._file)

    def _read_header(self, version: int) -> None:
        head = self._read(0, 112).ljust(112, b"\0")
        self._has_zero_flag = version == 3
        self._is_zstd = version == 3 and head[104] == _ZSTD and self._header_length(head) > 104
        (l1_offset,) = struct.unpack_from(">Q", head, 40)
        count = -(-self.size // (self.cluster * self._table_entries))
        self._l1 = self._read_whole(l1_offset, 8 * count, "first-level table")

    @staticmethod
    def _header_length(head: bytes) -> int:
        return int(struct.unpack_from(">I", head, 100)[0])

    def read(self, offset: int, length: int) -> bytes | None:
        """Read bytes that lie in one cluster; None if this layer does not allocate it, so that the
        layer below decides. Raises DiskFileError."""
        entry = self._entry(offset >> self._bits)
        if entry == 0:
            return None
        within = offset & (self.cluster - 1)
        try:
            if entry & COMPRESSED:
                return self._unpack(entry)[within : within + length]
            if entry & ZERO and self._has_zero_flag:
                return _ZEROS if length == len(_ZEROS) else bytes(length)
            place = entry & OFFSET_MASK
            if place == 0:
                return None
            require(place & (self.cluster - 1) == 0, "a cluster is not aligned")
            self._require_inside(place, 1, "a cluster")
        except MalformedError as error:
            raise self._bad(str(error)) from error
        # Bytes beyond the end of the file read as zeros, as in QEMU.
        return self._read(place + within, length).ljust(length, b"\0")

    def allocated(self) -> Iterator[tuple[int, int]]:
        """Yield the parts of the disk that this layer allocates: (start, end) in bytes, ascending,
        ``end`` exclusive. Raises DiskFileError."""
        seen = set()
        for number in range(len(self._l1) // 8):
            if (table := self._table(number)) is None or not any(table):
                continue
            place = self._l1_entry(number)
            if place in seen:
                raise self._bad("two parts of the disk have one second-level table")
            seen.add(place)
            first = number * self._table_entries
            for at, (entry,) in enumerate(struct.iter_unpack(">Q", table)):
                if entry & (OFFSET_MASK | COMPRESSED | ZERO):
                    start = (first + at) << self._bits
                    yield start, min(start + self.cluster, self.size)

    def _l1_entry(self, number: int) -> int:
        return int.from_bytes(self._l1[8 * number : 8 * number + 8]) & OFFSET_MASK

    def _table(self, number: int) -> bytes | None:
        """Return a second-level table, or None if it is not allocated."""
        place = self._l1_entry(number)
        if place == 0:
            return None
        return self._read_whole(place, self.cluster, "second-level table")

    def _entry(self, cluster: int) -> int:
        number, at = divmod(cluster, self._table_entries)
        if (place := self._l1_entry(number)) == 0:
            return 0
        if (table := self._tables.get(place)) is None:
            whole = self._read_whole(place, self.cluster, "second-level table")
            table = self._tables.put(place, Table(whole))
        return table.entry(at)

    def _unpack(self, entry: int) -> bytes:
        """Decompress a cluster. Raises MalformedError."""
        split = 62 - (self._bits - 8)
        place = entry & ((1 << split) - 1)
        sectors = (entry & (COMPRESSED - 1)) >> split
        if (found := self._unpacked.get(place)) is not None:
            return found
        self._require_inside(place, 1, "a compressed cluster")
        data = self._read(place, (sectors + 1) * SECTOR - place % SECTOR)
        try:
            if self._is_zstd:
                content = zstd.decompress(data, self.cluster)
            else:
                content = zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, self.cluster)
        except (ValueError, zlib.error) as error:
            raise MalformedError(f"a compressed cluster is damaged: {error}") from error
        require(len(content) == self.cluster, "a compressed cluster is cut off")
        return self._unpacked.put(place, content)

    def _read_whole(self, offset: int, length: int, what: str) -> bytes:
        try:
            require(offset & (self.cluster - 1) == 0, f"a {what} is not aligned")
            self._require_inside(offset, length, f"a {what}")
        except MalformedError as error:
            raise self._bad(str(error)) from error
        data = self._read(offset, length)
        if len(data) != length:
            raise self._bad(f"a {what} is cut off")
        return data

    def _require_inside(self, offset: int, length: int, what: str) -> None:
        if offset + length > self._file_size:
            # QEMU may have made the file longer meanwhile.
            self._file_size = os.fstat(self._file).st_size
        require(offset + length <= self._file_size, f"{what} lies beyond its end")

    def _read(self, offset: int, length: int) -> bytes:
        try:
            return os.pread(self._file, length, offset)
        except OSError as error:
            raise self._bad(error.strerror) from error

    def _bad(self, reason: object) -> DiskFileError:
        return DiskFileError(f"the layer {self.path} cannot be read: {reason}")


class Disk(Protocol):
    """A disk that holds a file system."""

    @property
    def size(self) -> int:
        """In bytes."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes, zeros beyond the end. Raises DiskFileError."""
        ...


class Chain:
    """Layers on top of each other, the lowest first. The backing files in headers are ignored."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self.size = self.layers[-1].size

    def read(self, offset: int, length: int) -> bytes:
        """Return ``length`` bytes of the disk. Raises DiskFileError naming a damaged layer."""
        parts = []
        while length > 0:
            parts.append(self._piece(offset, length))
            offset += len(parts[-1])
            length -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _piece(self, offset: int, length: int) -> bytes:
        """Return those of these bytes that one layer has in one cluster."""
        for layer in reversed(self.layers):
            # A shorter layer hides the layers below it: beyond its end the disk reads as zeros.
            if offset >= layer.size:
                break
            cluster = layer.cluster
            length = min(length, layer.size - offset, cluster - (offset & (cluster - 1)))
            data = layer.read(offset, length)
            if data is not None:
                return data
        return bytes(length)


def differing(a: Chain, b: Chain) -> Ranges:
    """Return the bytes that may differ: those in layers that the two disks do not share.

    Shared layers must be the same `Layer` objects in both chains. Raises DiskFileError.
    """
    shared = 0
    for layer_a, layer_b in zip(a.layers, b.layers, strict=False):
        if layer_a is not layer_b:
            break
        shared += 1
    own = (*a.layers[shared:], *b.layers[shared:])
    return Ranges(_covered(own, max(a.size, b.size)))


def _covered(layers: Sequence[Layer], size: int) -> Iterator[tuple[int, int]]:
    for layer in layers:
        yield from layer.allocated()
        # A shorter layer hides what is below it.
        yield layer.size, size
