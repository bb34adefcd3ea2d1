"""An ext4 file system: its blocks, inodes, directories (dynamic.rst) and links."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from quicksand_disks.changes import FileType
from quicksand_disks.errors import DiskFileError, MalformedError, require
from quicksand_disks.ext4.inode import SYSTEM_DATA, Extent, Inode, find_extents, read_attributes
from quicksand_disks.ext4.journal import Logged, replay
from quicksand_disks.ext4.superblock import INCOMPAT_FILETYPE, OFFSET, SIZE, Superblock
from quicksand_disks.qcow2.layers import Chain, Disk, Layer
from quicksand_disks.reading_limits import Budget, Cache

ROOT = 2
BLOCKS_KEPT = 16 * 1024 * 1024
"""Bytes of metadata blocks that are cached."""

NAMES_MAX = 1_000_000
"""Names in one directory; a disk of a machine has some half a million inodes."""

_ENTRY = struct.Struct("<IHBB")


class FileSystem:
    """An ext4 file system as it would be once its journal is replayed. Nothing is written."""

    def __init__(self, disk: Disk, budget: Budget | None = None) -> None:
        """Open it. Raises MalformedError naming the fault or the disk's other contents,
        DiskFileError."""
        self._disk = disk
        self._cache: Cache[int, bytes] = Cache(BLOCKS_KEPT)
        self._tables: dict[int, int] = {}
        self.budget = budget or Budget()
        self.logged: dict[int, Logged] = {}
        self._use(Superblock.read(disk))
        if self.superblock.needs_recovery:
            number = self.superblock.journal_inode
            require(number, "its journal is on another device")
            self.logged = replay(self, self.inode(number))
            self._cache = Cache(BLOCKS_KEPT)
            self._tables.clear()
            # The journal may hold a newer superblock.
            at = OFFSET // self.block_size
            data = self.read_block(at)[OFFSET - at * self.block_size :][:SIZE]
            self._use(Superblock.parse(data, disk.size))

    def _use(self, superblock: Superblock) -> None:
        self.superblock = superblock
        self.block_size = superblock.block_size
        self._has_types = bool(superblock.incompat & INCOMPAT_FILETYPE)

    # Blocks

    def require_blocks(self, first: int, count: int) -> None:
        """Raise MalformedError unless blocks of these numbers exist."""
        if first + count > self.superblock.blocks:
            raise MalformedError(f"it has no blocks {first} to {first + count - 1}")

    def read_block(self, number: int) -> bytes:
        """Read one block of metadata. Raises DisksError."""
        if (found := self._cache.get(number)) is not None:
            return found
        if not 0 <= number < self.superblock.blocks:
            raise MalformedError(f"it has no block {number}")
        return self._cache.put(number, self._fetch(number))

    def _fetch(self, number: int) -> bytes:
        size = self.block_size
        logged = self.logged.get(number)
        if logged is None:
            return self._disk.read(number * size, size)
        return logged.restore(self._disk.read(logged.block * size, size))

    def read_blocks(self, first: int, count: int) -> bytes:
        """Read blocks of a file's contents. Raises DiskFileError."""
        if self.logged and any(number in self.logged for number in range(first, first + count)):
            return b"".join(self._fetch(number) for number in range(first, first + count))
        return self._disk.read(first * self.block_size, count * self.block_size)

    # Inodes

    def inode_place(self, number: int) -> tuple[int, int]:
        """Return the block and the offset of an inode. Raises DisksError."""
        superblock = self.superblock
        if not 0 < number <= superblock.inodes:
            raise MalformedError(f"it has no inode {number}")
        group, at = divmod(number - 1, superblock.inodes_per_group)
        table = self._tables.get(group)
        if table is None:
            table = self._tables[group] = self._find_table(group)
        block, offset = divmod(at * superblock.inode_size, self.block_size)
        return table + block, offset

    def _find_table(self, group: int) -> int:
        block, at = self.superblock.descriptor_place(group)
        descriptor = self.read_block(block)[at : at + self.superblock.descriptor_size]
        (table,) = struct.unpack_from("<I", descriptor, 8)
        if len(descriptor) >= 64:
            table |= struct.unpack_from("<I", descriptor, 0x28)[0] << 32
        self.require_blocks(table, 1)
        return int(table)

    def raw_inode(self, number: int) -> bytes:
        """Read the bytes of an inode. Raises DisksError."""
        block, offset = self.inode_place(number)
        return self.read_block(block)[offset : offset + self.superblock.inode_size]

    def inode(self, number: int) -> Inode:
        """Read an inode. Raises DisksError."""
        return Inode(number, self.raw_inode(number))

    # Contents

    def entries(self, inode: Inode, extents: list[Extent]) -> dict[bytes, int]:
        """Read a directory without "." and "..": name -> inode number. Raises MalformedError."""
        names: dict[bytes, int] = {}
        if inode.has_inline_data:
            # Four bytes with the parent's inode stand in place of "." and "..".
            self._read_names(inode.block[4:], names)
            self._read_names(read_attributes(self, inode).get(SYSTEM_DATA, b""), names)
            return names
        end = -(-inode.size // self.block_size)
        for extent in extents:
            for at in range(min(extent.length, end - extent.logical)):
                self.budget.spend()
                self._read_names(self.read_block(extent.physical + at), names)
        return names

    def _read_names(self, block: bytes, names: dict[bytes, int]) -> None:
        """Add the entries of one directory block; of two equal names the first one counts.

        The index of a hashed directory hides in entries without an inode, so it needs no code.
        Raises MalformedError.
        """
        at = 0
        size = len(block)
        found = 0
        while at < size:
            require(at + 8 <= size, "a directory entry is cut off")
            inode, length, name_length, high = _ENTRY.unpack_from(block, at)
            # In blocks of 64 KiB the length of a whole block does not fit (fs/ext4/ext4.h).
            if length in (0, 65535) and size == 65536:
                length = size
            if length < 8 or length & 3 or at + length > size:
                raise MalformedError("a directory entry has an impossible length")
            found += 1
            if inode:
                if not self._has_types:
                    name_length |= high << 8
                name = block[at + 8 : at + 8 + name_length]
                if name not in (b".", b"..") and name not in names:
                    self._check_name(name, 8 + name_length <= length, inode)
                    names[name] = inode
            at += length
        self.budget.spend(found)
        require(len(names) <= NAMES_MAX, "a directory has too many names")

    def _check_name(self, name: bytes, fits: bool, inode: int) -> None:
        require(fits and len(name) <= 255, "a name is too long")
        require(name and b"/" not in name and b"\0" not in name, "a name is impossible")
        require(
            inode <= self.superblock.inodes, f"there is no inode {inode}, which a directory names"
        )

    def inline_data(self, inode: Inode) -> bytes:
        """Read a file that is stored in its inode. Raises DisksError."""
        data = inode.block + read_attributes(self, inode).get(SYSTEM_DATA, b"")
        return data[: inode.size]

    def target(self, inode: Inode) -> bytes:
        """Read the target of a symbolic link. Raises DisksError."""
        assert inode.type is FileType.SYMLINK
        if inode.is_fast_symlink:
            return inode.block[: inode.size]
        if inode.has_inline_data:
            return self.inline_data(inode)
        require(inode.size <= self.block_size, f"the target of the link {inode.number} is too long")
        extents = find_extents(self, inode)
        require(extents and extents[0].logical == 0, f"the link {inode.number} has no target")
        return self.read_blocks(extents[0].physical, 1)[: inode.size]


DIRECTORIES_KEPT = 16
"""Directories whose names a `Finder` keeps: more than the depth of most paths."""


def read_from_disk(layers: Sequence[Path], path: str, *, most: int) -> bytes | None:
    """Return the file at the absolute ``path`` on the disk that ``layers`` make, the lowest first;
    None if there is none. No link is followed. Blocks for I/O.

    Raises DiskFileError for a disk that makes no sense or holds another file system, and for a file
    of more than ``most`` bytes.
    """
    try:
        with opened_file_system(layers) as filesystem:
            found = Finder(filesystem).find(path)
            if found is None or found.type is not FileType.FILE:
                return None
            return content(filesystem, found, most)
    except MalformedError as error:
        raise DiskFileError(f"{path} on {layers[-1]} cannot be read: {error}") from error


@contextmanager
def opened_file_system(layers: Sequence[Path]) -> Iterator[FileSystem]:
    """Open the file system on the disk that ``layers`` make, the lowest first. Raises
    MalformedError if the disk holds none, DiskFileError."""
    with ExitStack() as stack:
        opened = []
        for layer in layers:
            opened.append(Layer(layer))
            stack.callback(opened[-1].close)
        yield FileSystem(Chain(opened))


class Finder:
    """Finds the inodes at paths of one file system. The directories read last are kept, so that a
    large one is not read again for each of its files."""

    def __init__(self, filesystem: FileSystem) -> None:
        self.filesystem = filesystem
        self._kept: OrderedDict[int, dict[bytes, int]] = OrderedDict()

    def find(self, path: str) -> Inode | None:
        """Return the inode at the absolute ``path``, of any type; None if there is none. No link is
        followed. Raises DisksError."""
        inode = self.filesystem.inode(ROOT)
        for name in filter(None, path.encode("utf-8", "surrogateescape").split(b"/")):
            if inode.type is not FileType.DIRECTORY:
                return None
            number = self._entries(inode).get(name)
            if number is None:
                return None
            inode = self.filesystem.inode(number)
        return inode

    def _entries(self, inode: Inode) -> dict[bytes, int]:
        if (kept := self._kept.get(inode.number)) is not None:
            self._kept.move_to_end(inode.number)
            return kept
        filesystem = self.filesystem
        entries = filesystem.entries(inode, find_extents(filesystem, inode))
        self._kept[inode.number] = entries
        if len(self._kept) > DIRECTORIES_KEPT:
            self._kept.popitem(last=False)
        return entries


def content(filesystem: FileSystem, inode: Inode, most: int) -> bytes:
    """Return a file's contents. Raises DisksError, also for more than ``most`` bytes."""
    require(inode.size <= most, f"it has more than {most} bytes")
    if inode.has_inline_data:
        return filesystem.inline_data(inode)
    size = filesystem.block_size
    data = bytearray(inode.size)
    for extent in find_extents(filesystem, inode):
        at = extent.logical * size
        length = min(extent.length, -(-(inode.size - at) // size))
        if length > 0:
            filesystem.budget.spend(length)
            data[at : at + length * size] = filesystem.read_blocks(extent.physical, length)
    return bytes(data[: inode.size])
