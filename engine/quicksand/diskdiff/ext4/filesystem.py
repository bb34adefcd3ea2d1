"""A file system on a disk."""

from __future__ import annotations

import struct

from quicksand.diskdiff.bounds import Budget, Cache, Malformed, require
from quicksand.diskdiff.chain import Disk
from quicksand.diskdiff.changes import FileType
from quicksand.diskdiff.ext4.directory import read_entries
from quicksand.diskdiff.ext4.inode import Extent, Inode, find_extents
from quicksand.diskdiff.ext4.journal import Logged, replay
from quicksand.diskdiff.ext4.superblock import INCOMPAT_FILETYPE, OFFSET, SIZE, Superblock
from quicksand.diskdiff.ext4.xattrs import SYSTEM_DATA, read_attributes

ROOT = 2
BLOCKS_KEPT = 16 * 1024 * 1024
"""Bytes of structures that are kept in memory."""


class FileSystem:
    """An ext4 file system as it would be after its journal was replayed. Nothing is written."""

    def __init__(self, disk: Disk, budget: Budget | None = None) -> None:
        """Raises Malformed saying what is wrong or what there is instead."""
        self._disk = disk
        self._cache: Cache[int] = Cache(BLOCKS_KEPT)
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
            # The superblock may be among what was logged.
            at = OFFSET // self.block_size
            data = self.read_block(at)[OFFSET - at * self.block_size :][:SIZE]
            self._use(Superblock.parse(data, disk.size))

    def _use(self, superblock: Superblock) -> None:
        self.superblock = superblock
        self.block_size = superblock.block_size
        self._has_types = bool(superblock.incompat & INCOMPAT_FILETYPE)

    # Blocks

    def require_blocks(self, first: int, count: int) -> None:
        """Raise Malformed unless there are blocks of these numbers."""
        if first + count > self.superblock.blocks:
            raise Malformed(f"it has no blocks {first} to {first + count - 1}")

    def read_block(self, number: int) -> bytes:
        """One block of the file system's own structures. Raises Malformed, ImageError."""
        if (found := self._cache.get(number)) is not None:
            return found
        if not 0 <= number < self.superblock.blocks:
            raise Malformed(f"it has no block {number}")
        return self._cache.put(number, self._fetch(number))

    def _fetch(self, number: int) -> bytes:
        size = self.block_size
        logged = self.logged.get(number)
        if logged is None:
            return self._disk.read(number * size, size)
        return logged.restore(self._disk.read(logged.block * size, size))

    def read_blocks(self, first: int, count: int) -> bytes:
        """Blocks of a file's contents."""
        if self.logged and any(number in self.logged for number in range(first, first + count)):
            return b"".join(self._fetch(number) for number in range(first, first + count))
        return self._disk.read(first * self.block_size, count * self.block_size)

    # Inodes

    def inode_place(self, number: int) -> tuple[int, int]:
        """Block and offset of an inode. Raises Malformed."""
        superblock = self.superblock
        if not 0 < number <= superblock.inodes:
            raise Malformed(f"it has no inode {number}")
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
        """An inode's bytes. Raises Malformed."""
        block, offset = self.inode_place(number)
        return self.read_block(block)[offset : offset + self.superblock.inode_size]

    def inode(self, number: int) -> Inode:
        return Inode(number, self.raw_inode(number))

    # Contents

    def entries(self, inode: Inode, extents: list[Extent]) -> dict[bytes, int]:
        """What a directory names, itself and its parent excepted: name -> inode."""
        names: dict[bytes, int] = {}
        if inode.has_inline_data:
            # In place of "." and ".." there are four bytes that name the parent.
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
        read_entries(
            block,
            names,
            inodes=self.superblock.inodes,
            has_types=self._has_types,
            budget=self.budget,
        )

    def inline_data(self, inode: Inode) -> bytes:
        """Of a file that is kept in its inode."""
        data = inode.block + read_attributes(self, inode).get(SYSTEM_DATA, b"")
        return data[: inode.size]

    def target(self, inode: Inode) -> bytes:
        """Where a symbolic link leads. Raises Malformed."""
        assert inode.type is FileType.SYMLINK
        if inode.is_fast_symlink:
            return inode.block[: inode.size]
        if inode.has_inline_data:
            return self.inline_data(inode)
        require(inode.size <= self.block_size, f"the target of the link {inode.number} is too long")
        extents = find_extents(self, inode)
        require(extents and extents[0].logical == 0, f"the link {inode.number} has no target")
        # A target has less bytes than a block.
        return self.read_blocks(extents[0].physical, 1)[: inode.size]
