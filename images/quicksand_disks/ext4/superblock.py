"""The superblock: geometry and features (Linux Documentation/filesystems/ext4/super.rst)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from quicksand_disks.errors import MalformedError, require
from quicksand_disks.qcow2.layers import Disk

OFFSET = 1024
SIZE = 1024
MAGIC = 0xEF53

COMPAT_HAS_JOURNAL = 0x4
COMPAT_SPARSE_SUPER2 = 0x200
RO_COMPAT_SPARSE_SUPER = 0x1
INCOMPAT_FILETYPE = 0x2
INCOMPAT_RECOVER = 0x4
INCOMPAT_META_BG = 0x10
INCOMPAT_64BIT = 0x80

INCOMPAT_READ = {
    INCOMPAT_FILETYPE,
    INCOMPAT_RECOVER,
    INCOMPAT_META_BG,
    0x40,  # extents
    INCOMPAT_64BIT,
    0x100,  # multiple mount protection
    0x200,  # flexible block groups
    0x400,  # large extended attributes in inodes of their own
    0x2000,  # seed of checksums
    0x4000,  # large directories
    0x8000,  # data in inodes
    0x20000,  # names without case
}
INCOMPAT_NAMES = {
    0x1: "compression",
    0x8: "journal device",
    0x1000: "data in directory entries",
    0x10000: "encryption",
}
"""Known features that are not read here. Those that only forbid writing (ro_compat) are fine."""

REV_0_INODE_SIZE = 128
BLOCK_MAX = 1 << 16
INODE_MIN = 128

_FOUND = (
    (512, b"EFI PART", "a partition table (GPT)"),
    (0, b"XFSB", "XFS"),
    (0x10040, b"_BHRfS_M", "Btrfs"),
    (0, b"hsqs", "SquashFS"),
    (0, b"LUKS\xba\xbe", "an encrypted disk (LUKS)"),
    (536, b"LABELONE", "a physical volume of LVM"),
    (510, b"\x55\xaa", "a partition table (MBR)"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Superblock:
    """The geometry, checked. Sizes are in bytes, ``blocks`` and ``inodes`` are counts."""

    block_size: int
    blocks: int
    first_block: int
    """1 if blocks have 1024 bytes (and bigalloc is off), else 0."""
    blocks_per_group: int
    inodes: int
    inodes_per_group: int
    inode_size: int
    descriptor_size: int
    first_meta_group: int | None
    """Descriptor blocks from this one on lie in the groups that they describe (meta_bg)."""
    incompat: int
    """Feature bits."""
    has_super: tuple[int, int] | None
    """With sparse_super2, the two groups besides the first that have a copy of the superblock."""
    sparse: bool
    """Only groups 0, 1 and the powers of 3, 5 and 7 have a copy of the superblock."""
    has_journal: bool
    journal_inode: int

    @classmethod
    def read(cls, disk: Disk) -> Superblock:
        """Read the superblock of a disk. Raises MalformedError naming what else is there,
        DiskFileError."""
        data = disk.read(OFFSET, SIZE)
        if struct.unpack_from("<H", data, 0x38)[0] != MAGIC:
            raise MalformedError(f"there is {_recognize(disk)} where an ext4 file system should be")
        return cls.parse(data, disk.size)

    @classmethod
    def parse(cls, data: bytes, disk_size: int) -> Superblock:
        """Parse the 1024 bytes of a superblock. Raises MalformedError."""
        require(struct.unpack_from("<H", data, 0x38)[0] == MAGIC, "its superblock is gone")
        inodes, blocks_low = struct.unpack_from("<II", data, 0)
        first_block, log_block = struct.unpack_from("<II", data, 0x14)
        blocks_per_group, _, inodes_per_group = struct.unpack_from("<III", data, 0x20)
        revision, _, _, _, inode_size = struct.unpack_from("<IHHIH", data, 0x4C)
        compat, incompat, ro_compat = struct.unpack_from("<III", data, 0x5C)
        _check_features(incompat)
        is_64bit = bool(incompat & INCOMPAT_64BIT)
        (blocks_high,) = struct.unpack_from("<I", data, 0x150)
        (descriptor_size,) = struct.unpack_from("<H", data, 0xFE)
        sparse2 = bool(compat & COMPAT_SPARSE_SUPER2)
        require(log_block <= 6, "its blocks are too large")
        found = cls(
            block_size=1024 << log_block,
            blocks=blocks_low | (blocks_high << 32 if is_64bit else 0),
            first_block=first_block,
            blocks_per_group=blocks_per_group,
            inodes=inodes,
            inodes_per_group=inodes_per_group,
            inode_size=inode_size if revision > 0 else REV_0_INODE_SIZE,
            descriptor_size=descriptor_size if is_64bit else 32,
            first_meta_group=struct.unpack_from("<I", data, 0x104)[0]
            if incompat & INCOMPAT_META_BG
            else None,
            incompat=incompat,
            has_super=struct.unpack_from("<II", data, 0x24C) if sparse2 else None,
            sparse=bool(ro_compat & RO_COMPAT_SPARSE_SUPER),
            has_journal=bool(compat & COMPAT_HAS_JOURNAL),
            journal_inode=struct.unpack_from("<I", data, 0xE0)[0],
        )
        found._check(disk_size)
        return found

    def _check(self, disk_size: int) -> None:
        size = self.block_size
        require(
            self.first_block == 0 or (self.first_block == 1 and size == 1024),
            "its first block has a wrong number",
        )
        require(self.first_block < self.blocks, "it has no blocks")
        require(self.blocks * size <= disk_size, "it is larger than its disk")
        require(self.blocks_per_group > 0, "its groups have an impossible size")
        require(0 < self.inodes_per_group <= 8 * size, "its groups have impossibly many inodes")
        require(
            INODE_MIN <= self.inode_size <= size and self.inode_size & (self.inode_size - 1) == 0,
            f"inodes of {self.inode_size} bytes",
        )
        descriptor = self.descriptor_size
        require(
            descriptor == 32 or (64 <= descriptor <= 1024 and not descriptor & (descriptor - 1)),
            f"group descriptors of {descriptor} bytes",
        )
        require(
            0 < self.inodes <= self.groups * self.inodes_per_group, "it has impossibly many inodes"
        )

    @property
    def needs_recovery(self) -> bool:
        return self.has_journal and bool(self.incompat & INCOMPAT_RECOVER)

    @property
    def groups(self) -> int:
        return -(-(self.blocks - self.first_block) // self.blocks_per_group)

    def layout(self) -> tuple[int, ...]:
        """Two file systems with equal layouts number their blocks and inodes in the same way."""
        return (
            self.block_size,
            self.first_block,
            self.blocks_per_group,
            self.inodes_per_group,
            self.inode_size,
        )

    def descriptor_place(self, group: int) -> tuple[int, int]:
        """Return the block and the offset of a group's descriptor."""
        per_block = self.block_size // self.descriptor_size
        table, at = divmod(group, per_block)
        if self.first_meta_group is None or table < self.first_meta_group:
            return OFFSET // self.block_size + 1 + table, at * self.descriptor_size
        first_group = table * per_block
        if first_group == 0:
            return OFFSET // self.block_size + 1, at * self.descriptor_size
        block = self.first_block + first_group * self.blocks_per_group
        return block + self._has_superblock(first_group), at * self.descriptor_size

    def _has_superblock(self, group: int) -> bool:
        if group == 0:
            return True
        if self.has_super is not None:
            return group in self.has_super
        if not self.sparse or group == 1:
            return True
        return any(_is_power(group, base) for base in (3, 5, 7))


def _is_power(number: int, base: int) -> bool:
    while number % base == 0:
        number //= base
    return number == 1


def _check_features(incompat: int) -> None:
    for bit in (1 << n for n in range(32)):
        if incompat & bit and bit not in INCOMPAT_READ:
            name = INCOMPAT_NAMES.get(bit, f"{bit:#x}")
            raise MalformedError(f"it uses a feature of ext4 that is not read here: {name}")


def _recognize(disk: Disk) -> str:
    for offset, magic, name in _FOUND:
        if disk.read(offset, len(magic)) == magic:
            return name
    return "something else" if any(disk.read(0, BLOCK_MAX)) else "nothing"
