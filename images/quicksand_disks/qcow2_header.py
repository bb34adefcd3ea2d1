"""Checks a qcow2 header before any QEMU tool opens the file, and reads refcounts (QEMU
docs/interop/qcow2.txt).

A file from elsewhere may name backing files or external data files of the host, or claim sizes that
exhaust it. A header that is not plainly harmless is refused.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from quicksand_disks.errors import DiskFileError, MalformedError, UnfitDiskError, require

MAGIC = b"QFI\xfb"
VIRTUAL_SIZE_MAX = 16 * 1024**4
"""Bytes. A file of 1.2 MiB can claim 60 TiB; few machines need more than this."""

INCOMPATIBLE_DIRTY = 1 << 0
INCOMPATIBLE_CORRUPT = 1 << 1
INCOMPATIBLE_DATA_FILE = 1 << 2
INCOMPATIBLE_COMPRESSION = 1 << 3
INCOMPATIBLE_EXTENDED_L2 = 1 << 4
INCOMPATIBLE_ALLOWED = INCOMPATIBLE_DIRTY | INCOMPATIBLE_COMPRESSION
DATA_FILE = "its data is in an external data file, and only what is in one file is used"
EXTENDED_L2 = "it has subclusters (extended L2 entries), which are not read here"
"""QEMU reads such disks, but the code that compares, merges and saves disks here does not."""

CONVERT = "`qemu-img convert -O qcow2 OLD NEW` makes an ordinary one of it, where you trust it"
"""The hint for a file that is not such an image, but that QEMU can read."""

L1_SIZE_MAX = 32 * 1024 * 1024 // 8
"""Entries; QEMU's own limit (block/qcow2.h, QCOW_MAX_L1_SIZE)."""

REFTABLE_MAX = 8 * 1024 * 1024
"""Bytes; QEMU's own limit (QCOW_MAX_REFTABLE_SIZE)."""

SNAPSHOTS_MAX = 65536
"""QEMU's own limit (QCOW_MAX_SNAPSHOTS)."""

SNAPSHOT_MIN = 40
"""Bytes of the shortest entry in the snapshot table."""

NO_FILE = "it is not a regular file"

HEAD = 1 << 16
"""Bytes at the beginning of a file that are parsed."""

_FORMATS = (
    (b"KDMV", "VMDK"),
    (b"# Disk DescriptorFile", "VMDK"),
    (b"<<< ", "VDI"),
    (b"vhdxfile", "VHDX"),
    (b"conectix", "VHD"),
    (b"QED\0", "QED"),
    (b"LUKS\xba\xbe", "LUKS"),
)
"""The beginnings of disks of other formats (QEMU block/*.c)."""

_CIPHERS = {1: "AES", 2: "LUKS"}

_HEADER_LENGTH_2 = 72
_REFCOUNTS_HEAD = 104
_REFCOUNT_ORDER_2 = 4
_COMPRESSION_TYPES = (0, 1)  # deflate, zstd
_EXT_END = 0x00000000
_EXT_DATA_FILE = 0x44415441
_EXTENSIONS_MAX = 64


class NotAFileError(OSError):
    """Raised by `open_regular` for a name that is not a regular file's."""


def open_regular(path: Path) -> int:
    """Open a regular file for reading and return its descriptor, which is not inherited. Raises
    NotAFileError, other OSErrors."""
    try:
        # O_NONBLOCK: opening a FIFO does not wait. It means nothing for regular files.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise NotAFileError(errno.EINVAL, NO_FILE, os.fspath(path)) from error
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotAFileError(errno.EINVAL, NO_FILE, os.fspath(path))
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


@dataclass(frozen=True, slots=True, kw_only=True)
class Qcow2Header:
    """The facts in a qcow2 header."""

    version: int
    virtual_size: int
    """Bytes of the disk as the guest sees it."""
    cluster_bits: int
    l1_offset: int
    l1_size: int
    """The first-level table: its offset in bytes, and its number of 8-byte entries."""
    backing_file: str | None
    """The name in the header; it is never opened."""
    snapshots: int

    @property
    def mapped_max(self) -> int:
        """Bytes of content that the first-level table can map."""
        return self.l1_size * (1 << self.cluster_bits) * (1 << self.cluster_bits - 3)


def check_qcow2(path: Path, *, allow_backing: bool = False) -> Qcow2Header:
    """Read and check the header of ``path``.

    Raises DiskFileError naming the file and what is wrong with it.
    """
    try:
        descriptor = open_regular(path)
        try:
            size = os.fstat(descriptor).st_size
            head = os.pread(descriptor, HEAD, 0)
        finally:
            os.close(descriptor)
    except NotAFileError as error:
        raise DiskFileError(f"{path} is not a regular file") from error
    except OSError as error:
        raise DiskFileError(f"cannot read {path}: {error.strerror}") from error
    return parse_header(str(path), head, size, allow_backing=allow_backing)


def parse_header(name: str, head: bytes, file_size: int, *, allow_backing: bool) -> Qcow2Header:
    """Parse ``head``, the first HEAD bytes of a file of ``file_size`` bytes. Raises DiskFileError
    naming the file ``name`` and what is wrong with it."""
    try:
        return _parse(head, file_size, allow_backing=allow_backing)
    except (MalformedError, struct.error) as error:
        hint = error.hint if isinstance(error, MalformedError) else ""
        raise DiskFileError(f"{name} is not a usable qcow2 image: {error}", hint=hint) from error


def _parse(head: bytes, file_size: int, *, allow_backing: bool) -> Qcow2Header:
    for begin, format_ in _FORMATS:
        _allow(not head.startswith(begin), f"it is a {format_} image")
    require(head[:4] == MAGIC, "it does not begin like one")
    require(len(head) >= 72, "it is cut off in its header")
    version, backing_offset, backing_size, cluster_bits, virtual_size, crypt, l1_size, l1_offset = (
        struct.unpack_from(">IQIIQIIQ", head, 4)
    )
    reftable_offset, reftable_clusters, snapshots, snapshots_offset = struct.unpack_from(
        ">QIIQ", head, 48
    )
    _allow(version != 1, "it is an image of the older format qcow")
    require(version in (2, 3), f"version {version} is unknown")
    require(9 <= cluster_bits <= 21, f"{cluster_bits} cluster bits are out of range")
    _allow(crypt == 0, f"it is encrypted ({_CIPHERS.get(crypt, crypt)})")
    require(virtual_size > 0, "it is a disk of no bytes")
    require(
        virtual_size <= VIRTUAL_SIZE_MAX,
        f"a disk of {virtual_size} bytes is too large: {VIRTUAL_SIZE_MAX >> 40} TiB are the most",
    )
    cluster = 1 << cluster_bits
    require(l1_size <= L1_SIZE_MAX, "its first-level table is too large")
    require(
        l1_size * cluster * (cluster // 8) >= virtual_size, "its first-level table is too small"
    )
    require(reftable_clusters > 0, "it has no refcount table")
    require(reftable_clusters * cluster <= REFTABLE_MAX, "its refcount table is too large")
    require(snapshots <= SNAPSHOTS_MAX, f"it claims to hold {snapshots} snapshots")
    for offset, length, what in (
        (l1_offset, l1_size * 8, "first-level table"),
        (reftable_offset, reftable_clusters * cluster, "refcount table"),
        (snapshots_offset, snapshots * SNAPSHOT_MIN, "table of snapshots"),
    ):
        require(offset % cluster == 0, f"its {what} is not aligned")
        require(length == 0 or offset > 0, f"its {what} lies in its header")
        require(offset + length <= file_size, f"it is cut off: its {what} lies beyond the end")
    header_length = _check_version_3(head) if version == 3 else _HEADER_LENGTH_2
    # As in QEMU: extensions end where the backing file's name begins, else with the first cluster.
    _check_extensions(head, header_length, end=backing_offset or min(cluster, len(head)))
    backing = _backing_file(head, backing_offset, backing_size)
    _allow(backing is None or allow_backing, f"it names a backing file ({backing!r})")
    return Qcow2Header(
        version=version,
        virtual_size=virtual_size,
        cluster_bits=cluster_bits,
        l1_offset=l1_offset,
        l1_size=l1_size,
        backing_file=backing,
        snapshots=snapshots,
    )


def _check_version_3(head: bytes) -> int:
    """Check the fields that version 3 adds; return the header's length in bytes."""
    incompatible, _, _, refcount_order, header_length = struct.unpack_from(">QQQII", head, 72)
    _allow(not incompatible & INCOMPATIBLE_DATA_FILE, DATA_FILE)
    _allow(not incompatible & INCOMPATIBLE_EXTENDED_L2, EXTENDED_L2)
    require(not incompatible & INCOMPATIBLE_CORRUPT, "it is marked as corrupt")
    unknown = incompatible & ~INCOMPATIBLE_ALLOWED
    require(unknown == 0, f"it needs features {unknown:#x}, which are unknown")
    require(refcount_order <= 6, "its refcounts are too wide")
    require(104 <= header_length <= 4096 and header_length % 8 == 0, "its header length is wrong")
    if incompatible & INCOMPATIBLE_COMPRESSION:
        require(header_length > 104, "it does not say how it is compressed")
        require(head[104] in _COMPRESSION_TYPES, f"compression type {head[104]} is unknown")
    return int(header_length)


def _check_extensions(head: bytes, position: int, *, end: int) -> None:
    for _ in range(_EXTENSIONS_MAX):
        if position >= end:
            return
        kind, length = struct.unpack_from(">II", head, position)
        if kind == _EXT_END:
            return
        _allow(kind != _EXT_DATA_FILE, DATA_FILE)
        position += 8 + -(-length // 8) * 8
        require(position <= end, "its header extensions do not end")
    raise MalformedError("it has too many header extensions")


def _backing_file(head: bytes, offset: int, size: int) -> str | None:
    if offset == 0 and size == 0:
        return None
    require(0 < size <= 1023, "its backing file's name is too long")
    require(offset + size <= len(head), "its backing file's name lies outside the header")
    return os.fsdecode(head[offset : offset + size])


def _allow(condition: bool, message: str) -> None:
    """Raise UnfitDiskError if QEMU could use a disk that is not accepted here."""
    if not condition:
        raise UnfitDiskError(message, hint=CONVERT)


def is_used(descriptor: int, start: int, end: int) -> bool:
    """Whether any cluster with bytes from ``start`` to before ``end`` is in use.

    The header must have passed `check_qcow2`. If the file was not closed properly (dirty bit), its
    refcounts are not reliable and every cluster counts as used. Raises MalformedError, OSError.
    """
    head = os.pread(descriptor, _REFCOUNTS_HEAD, 0).ljust(_REFCOUNTS_HEAD, b"\0")
    version, bits = struct.unpack_from(">I12xI", head, 4)
    table, table_clusters = struct.unpack_from(">QI", head, 48)
    order = _REFCOUNT_ORDER_2
    if version == 3:
        features, order = struct.unpack_from(">Q16xI", head, 72)
        if features & INCOMPATIBLE_DIRTY:
            return True
    per_block = (8 << bits) >> order
    for cluster in range(start >> bits, (end + (1 << bits) - 1) >> bits):
        block, number = divmod(cluster, per_block)
        if block >= table_clusters << bits >> 3:
            return False
        place = int.from_bytes(_read_refcounts(descriptor, table + 8 * block, 8)) & ~511
        if place and _count(descriptor, place, number, order):
            return True
    return False


def _count(descriptor: int, block: int, number: int, order: int) -> int:
    width, bit = 1 << order, number << order
    data = _read_refcounts(descriptor, block + bit // 8, max(1, width // 8))
    return int.from_bytes(data) >> bit % 8 & ((1 << width) - 1)


def _read_refcounts(descriptor: int, place: int, length: int) -> bytes:
    data = os.pread(descriptor, length, place)
    if len(data) != length:
        raise MalformedError("its refcounts lie beyond its end")
    return data


SNAPSHOTS_READ = 64
"""The most internal snapshots of a layer: published packages may have left some, all unused."""

OVERHEAD = 64 * 1024 * 1024
"""The most bytes by which a disk's file may exceed what it can map: tables and freed clusters."""

SNAPSHOT_EXTRA_MAX = 1024
"""Bytes; QEMU's own limit (block/qcow2.h, QCOW_MAX_SNAPSHOT_EXTRA_DATA)."""

_PROTOCOL = re.compile(r"[^/]*:")
"""QEMU takes text before a colon, without a slash, for a protocol (block.c, path_has_protocol)."""

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
"""A Windows path, which does not name a protocol."""

_SNAPSHOT = struct.Struct(">QIHHIIQII")
"""An entry of the snapshot table (QEMU docs/interop/qcow2.txt)."""


class ForeignDisk:
    """Checks a qcow2 file while it is written, so that a bad one is refused by its first bytes and
    not after gigabytes. The header must be checked again when the file is complete."""

    def __init__(self, name: str, size: int, *, allow_backing: bool = False) -> None:
        """``name`` is the file's name in errors, ``size`` its declared bytes."""
        self._name = name
        self._size = size
        self._allow_backing = allow_backing
        self._head = b""
        self._header: Qcow2Header | None = None
        self._at = 0
        self._is_mapped: bool | None = None
        """Whether the first-level table has entries; None until all of it was read."""

    def look(self, data: bytes) -> None:
        """Check the next piece of the file. Raises DiskFileError."""
        if self._header is None:
            self._head += data
            if len(self._head) < min(HEAD, self._size):
                return
            data = self._head
            self._header = parse_header(
                self._name, data[:HEAD], self._size, allow_backing=self._allow_backing
            )
            # Twice, because the file keeps the space of deleted snapshots.
            self._require_below(2 * self._header.mapped_max * (1 + self._header.snapshots))
            self._head = b""
        if self._is_mapped is None:
            self._look_at_table(self._header, data)
        self._at += len(data)

    def _look_at_table(self, header: Qcow2Header, data: bytes) -> None:
        start = header.l1_offset - self._at
        end = start + 8 * header.l1_size
        part = data[max(0, start) : max(0, end)]
        if part.count(0) != len(part):
            self._is_mapped = True
        elif end <= len(data):
            self._is_mapped = False
            if not header.snapshots:
                self._require_below(header.l1_offset + 8 * header.l1_size)

    def _require_below(self, size: int) -> None:
        if self._size > size + OVERHEAD:
            raise DiskFileError(
                f"{self._name} is refused: it has {self._size >> 20} MiB, and its header leads to "
                f"{size >> 20} MiB at the most"
            )


def check_backing_name(name: str | None) -> None:
    """Raise MalformedError unless the name is an ordinary path of a qcow2 file. Nothing
    here follows the names in headers, but other tools do."""
    if name is None:
        return
    if _PROTOCOL.match(name) and not _DRIVE.match(name):
        raise MalformedError(f"it names a protocol as its backing file ({name[:100]!r})")
    if not name.lower().endswith(".qcow2") or ".." in re.split(r"[\\/]", name):
        raise MalformedError(
            f"it names a file as its backing file that is no layer ({name[:100]!r})"
        )


def check_snapshots(path: Path) -> None:
    """Check the table of internal snapshots of a qcow2 file whose header was checked. Raises
    MalformedError, OSError."""
    descriptor = open_regular(path)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        try:
            _check_snapshots(file)
        except struct.error as error:
            raise MalformedError(str(error)) from error


def _check_snapshots(file: BinaryIO) -> None:
    """Raises MalformedError, struct.error, OSError."""
    size = file.seek(0, 2)
    file.seek(60)
    count, offset = struct.unpack(">IQ", file.read(12))
    require(count <= SNAPSHOTS_READ, f"it claims to hold {count} snapshots")
    for _ in range(count):
        file.seek(offset)
        l1_offset, l1_size, id_size, name_size, *_, state, extra = _SNAPSHOT.unpack(
            file.read(_SNAPSHOT.size)
        )
        tables = l1_size > L1_SIZE_MAX or l1_offset + 8 * l1_size > size
        impossible = tables or extra > SNAPSHOT_EXTRA_MAX or state > size
        require(not impossible, "a snapshot in it claims an impossible size")
        more = file.read(extra)
        if len(more) >= 16:
            state, virtual_size = struct.unpack(">QQ", more[:16])
            possible = state <= size and virtual_size <= VIRTUAL_SIZE_MAX
            require(possible, "a snapshot in it claims an impossible size")
        length = _SNAPSHOT.size + extra + id_size + name_size
        # The padding of the last entry may be missing.
        require(offset + length <= size, "its table of snapshots is cut off")
        offset += -(-length // 8) * 8
