"""Inodes, and where their data lie (inodes.rst, ifork.rst)."""

from __future__ import annotations

import stat
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from quicksand_disks.changes import FileType
from quicksand_disks.errors import MalformedError, require
from quicksand_disks.reading_limits import Budget

FLAG_EXTENTS = 0x80000
FLAG_INLINE_DATA = 0x10000000
FLAGS_OF_USERS = 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x4000 | 0x10000 | 0x40000000
"""The flags that chattr(1) sets: sync, immutable, append only, no dump, no access times, journalled
data, synchronous directory, no case."""

EXTENT_MAGIC = 0xF30A
EXTENT_DEPTH_MAX = 5
UNWRITTEN = 32768
"""The bound of an extent's length. A longer one is allocated but unwritten: its real length is less
by this number, and it reads as zeros."""

EXTENTS_MAX = 500_000
"""Extents of one file that are read; more raise MalformedError."""

ROOT_EXTENTS = 4
"""Extents for which an inode has room."""

BLOCK_AT = 40
BLOCK_SIZE = 60
"""Bytes of i_block, which says where the data are, or holds them."""

_TYPES = {
    stat.S_IFREG: FileType.FILE,
    stat.S_IFDIR: FileType.DIRECTORY,
    stat.S_IFLNK: FileType.SYMLINK,
    stat.S_IFCHR: FileType.CHARACTER_DEVICE,
    stat.S_IFBLK: FileType.BLOCK_DEVICE,
    stat.S_IFIFO: FileType.FIFO,
    stat.S_IFSOCK: FileType.SOCKET,
}
_HEADER = struct.Struct("<HHHH")
_LEAF = struct.Struct("<IHHI")
_QUICK = struct.Struct("<H2xI24xI4xHH2xH56xI10xH")
"""An inode's mode, lower half of the size, flags, extent magic, count and depth, and both parts of
the number of its attribute block."""
_INDEX = struct.Struct("<IIH")


class Extent(NamedTuple):
    """Consecutive blocks of a file: number in the file, count, number on the disk."""

    logical: int
    length: int
    physical: int


class Volume(Protocol):
    """The part of a file system that reading inodes needs."""

    @property
    def block_size(self) -> int: ...
    @property
    def budget(self) -> Budget: ...

    def read_block(self, number: int) -> bytes:
        """Raises MalformedError if the block does not exist, DiskFileError."""
        ...

    def require_blocks(self, first: int, count: int) -> None:
        """Raise MalformedError unless the file system has these blocks."""
        ...


@dataclass(frozen=True)
class Inode:
    """One inode, decoded from its bytes as needed."""

    number: int
    raw: bytes

    @cached_property
    def type(self) -> FileType:
        """Raises MalformedError for an unknown type."""
        (mode,) = struct.unpack_from("<H", self.raw, 0)
        found = _TYPES.get(stat.S_IFMT(mode))
        if found is None:
            raise MalformedError(f"the inode {self.number} is of no type (mode {mode:#o})")
        return found

    @property
    def mode(self) -> int:
        """The permission bits."""
        return stat.S_IMODE(int(struct.unpack_from("<H", self.raw, 0)[0]))

    @property
    def owner(self) -> tuple[int, int]:
        """User id and group id."""
        uid, gid = (struct.unpack_from("<H", self.raw, at)[0] for at in (2, 24))
        uid_high, gid_high = struct.unpack_from("<HH", self.raw, 120)
        return uid | uid_high << 16, gid | gid_high << 16

    @property
    def size(self) -> int:
        """In bytes."""
        low, high = (struct.unpack_from("<I", self.raw, at)[0] for at in (4, 108))
        return int(low | high << 32)

    @property
    def mtime(self) -> tuple[int, int]:
        """The raw seconds and nanoseconds fields: good for comparing only."""
        (seconds,) = struct.unpack_from("<I", self.raw, 16)
        extra = struct.unpack_from("<I", self.raw, 136)[0] if self.extra_size >= 12 else 0
        return seconds, extra

    @property
    def flags(self) -> int:
        return int(struct.unpack_from("<I", self.raw, 32)[0])

    @property
    def acl_block(self) -> int:
        """The number of the block with extended attributes, or 0."""
        (low,) = struct.unpack_from("<I", self.raw, 104)
        (high,) = struct.unpack_from("<H", self.raw, 118)
        return int(low | high << 32)

    @property
    def extra_size(self) -> int:
        """Bytes of fields after the first 128; extended attributes follow them."""
        return int(struct.unpack_from("<H", self.raw, 128)[0]) if len(self.raw) > 128 else 0

    @property
    def block(self) -> bytes:
        """The 60 bytes of i_block."""
        return self.raw[BLOCK_AT : BLOCK_AT + BLOCK_SIZE]

    @property
    def has_inline_data(self) -> bool:
        return bool(self.flags & FLAG_INLINE_DATA)

    @property
    def is_fast_symlink(self) -> bool:
        """Whether it is a symbolic link whose target is in i_block."""
        inline = self.size < BLOCK_SIZE and not self.flags & (FLAG_EXTENTS | FLAG_INLINE_DATA)
        return inline and self.type is FileType.SYMLINK


def blocks_of(raw: bytes) -> list[Extent] | None:
    """Return all blocks of a non-directory, including those of its attributes, unchecked; None if
    the inode's bytes alone do not tell.

    This runs for every file of the disk, so it decodes all fields at once and does not use `Inode`.
    """
    mode, size, flags, magic, count, depth, acl, acl_high = _QUICK.unpack_from(raw)
    acl |= acl_high << 32
    found = [Extent(0, 1, acl)] if acl else []
    kind = stat.S_IFMT(mode)
    is_file = kind == stat.S_IFREG
    if not (is_file or kind == stat.S_IFLNK) or flags & FLAG_INLINE_DATA:
        return found
    if not flags & FLAG_EXTENTS:
        return found if size < BLOCK_SIZE and not is_file else None
    if magic != EXTENT_MAGIC or depth or count > ROOT_EXTENTS:
        return None
    for at in range(BLOCK_AT + 12, BLOCK_AT + 12 + 12 * count, 12):
        logical, length, high, low = _LEAF.unpack_from(raw, at)
        if length <= UNWRITTEN:
            found.append(Extent(logical, length, high << 32 | low))
    return found


def find_extents(volume: Volume, inode: Inode) -> list[Extent]:
    """Return the places of the data of a file, a directory or a long symbolic link, ascending.
    Holes and unwritten extents are left out. Raises DisksError."""
    if inode.flags & FLAG_EXTENTS:
        tree = _ExtentTree(volume, inode.number)
        tree.visit(inode.block, None)
        return tree.found
    return _IndirectBlocks(volume, inode.number).read(inode.block)


class _Extents:
    """Collects and checks the extents of one inode."""

    def __init__(self, volume: Volume, number: int) -> None:
        self.volume = volume
        self.number = number
        self.found: list[Extent] = []
        self.end = 0
        """The number of the block after the last one that was found."""

    def add(self, logical: int, count: int, physical: int, *, written: bool = True) -> None:
        if logical < self.end:
            raise self.bad("extents are out of order")
        if logical + count > 1 << 32:
            raise self.bad("there are too many blocks")
        self.volume.require_blocks(physical, count)
        self.end = logical + count
        if written:
            self.found.append(Extent(logical, count, physical))
            if len(self.found) > EXTENTS_MAX:
                raise self.bad("it is in too many pieces")

    def bad(self, reason: str) -> MalformedError:
        return MalformedError(f"inode {self.number}: {reason}")


class _ExtentTree(_Extents):
    """Reads a tree of extents (ifork.rst)."""

    def visit(self, node: bytes, depth: int | None) -> None:
        """Visit a node. ``depth`` is what the parent implies; None at the root. Raises
        MalformedError.

        Every node below the root leads to extents, and extents must ascend, so no node can be
        visited twice.
        """
        magic, count, _, found_depth = _HEADER.unpack_from(node)
        if magic != EXTENT_MAGIC:
            raise self.bad("there is no tree of extents")
        if count > (len(node) - 12) // 12 or (count == 0 and depth is not None):
            raise self.bad("a node of extents is too full, or empty")
        if depth is None and found_depth > EXTENT_DEPTH_MAX:
            raise self.bad("its tree of extents is too deep")
        if depth is not None and found_depth != depth:
            raise self.bad("its tree of extents is uneven")
        self.volume.budget.spend(count + 1)
        for at in range(12, 12 + 12 * count, 12):
            if found_depth == 0:
                logical, length, high, low = _LEAF.unpack_from(node, at)
                if length == 0:
                    raise self.bad("an extent is empty")
                written = length <= UNWRITTEN
                length = length if written else length - UNWRITTEN
                self.add(logical, length, high << 32 | low, written=written)
            else:
                _, low, high = _INDEX.unpack_from(node, at)
                self.visit(self.volume.read_block(high << 32 | low), found_depth - 1)


class _IndirectBlocks(_Extents):
    """Reads the block maps of ext2 and ext3 (ifork.rst, "Direct/Indirect Block Addressing")."""

    def read(self, block: bytes) -> list[Extent]:
        numbers = struct.unpack("<15I", block)
        logical = 0
        for at, number in enumerate(numbers):
            logical = self._visit(number, max(0, at - 11), logical)
        return self.found

    def _visit(self, number: int, depth: int, logical: int) -> int:
        """Return the number of the file's block after those below ``number``."""
        per_block = self.volume.block_size // 4
        if number == 0:
            return logical + int(per_block**depth)
        self.volume.budget.spend()
        if depth == 0:
            self._add_block(logical, number)
            return logical + 1
        for (below,) in struct.iter_unpack("<I", self.volume.read_block(number)):
            logical = self._visit(below, depth - 1, logical)
        return logical

    def _add_block(self, logical: int, number: int) -> None:
        if self.found:
            last = self.found[-1]
            if (last.logical + last.length, last.physical + last.length) == (logical, number):
                self.volume.require_blocks(number, 1)
                self.end = logical + 1
                self.found[-1] = last._replace(length=last.length + 1)
                return
        self.add(logical, 1, number)


MAGIC = 0xEA020000
BLOCK_HEADER = 32
SYSTEM_DATA = (7, b"data")
"""Not a user's attribute: the rest of a file that is stored in its inode."""

VALUE_STEP = 256
"""Bytes of values that count as one step."""

Attributes = dict[tuple[int, bytes], bytes]
"""(Number of the name's prefix, rest of the name) -> value. For a value in an inode of its own: its
number, length and hash."""

_ENTRY = struct.Struct("<BBHIII")


def read_attributes(volume: Volume, inode: Inode) -> Attributes:
    """Read all extended attributes of an inode. Raises DisksError."""
    found: Attributes = {}
    start = 128 + inode.extra_size
    if inode.extra_size and start + 4 <= len(inode.raw):
        (magic,) = struct.unpack_from("<I", inode.raw, start)
        if magic == MAGIC:
            _read(inode.raw[start + 4 :], 0, found)
    if inode.acl_block:
        block = volume.read_block(inode.acl_block)
        (magic,) = struct.unpack_from("<I", block)
        require(magic == MAGIC, f"the attributes of the inode {inode.number} are damaged")
        _read(block, BLOCK_HEADER, found)
    # Values may overlap, so the values in a block can add up to many times its size.
    volume.budget.spend(1 + len(found) + sum(map(len, found.values())) // VALUE_STEP)
    return found


def _read(area: bytes, at: int, found: Attributes) -> None:
    """Read entries from ``at`` on; offsets of values count from the beginning of ``area``."""
    while at + 4 <= len(area) and area[at : at + 4] != bytes(4):
        require(at + _ENTRY.size <= len(area), "an extended attribute is cut off")
        name_length, prefix, offset, inode, size, hash_ = _ENTRY.unpack_from(area, at)
        name = area[at + _ENTRY.size : at + _ENTRY.size + name_length]
        if inode:
            value = struct.pack("<III", inode, size, hash_)
        else:
            require(offset + size <= len(area), "an extended attribute is too long")
            value = area[offset : offset + size]
        found.setdefault((prefix, name), value)
        at += _ENTRY.size + (name_length + 3) // 4 * 4
