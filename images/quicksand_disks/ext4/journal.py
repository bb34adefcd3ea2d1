"""Reads the journal (journal.rst; names as in include/linux/jbd2.h).

The disk of a running VM holds a mounted file system: blocks of its latest transactions may be in
the journal only, and are read from there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from quicksand_disks.errors import MalformedError, require
from quicksand_disks.ext4.inode import Extent, Inode, Volume, find_extents

MAGIC = 0xC03B3998
DESCRIPTOR, COMMIT, SUPERBLOCK_1, SUPERBLOCK_2, REVOKE = 1, 2, 3, 4, 5

INCOMPAT_64BIT = 0x2
INCOMPAT_CSUM_V2 = 0x8
INCOMPAT_CSUM_V3 = 0x10
INCOMPAT_READ = 0x1 | INCOMPAT_64BIT | 0x4 | INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3
"""With revocations (0x1) and asynchronous commits (0x4)."""
INCOMPAT_FAST_COMMIT = 0x20

FLAG_ESCAPED, FLAG_SAME_UUID, FLAG_LAST = 1, 2, 8

BLOCKS_MAX = 1 << 18
"""Blocks of a journal. mke2fs never picks a larger journal by itself."""

_HEADER = struct.Struct(">III")
_SEQUENCES = 1 << 32


@dataclass(frozen=True, slots=True)
class Logged:
    """The place in the journal of the latest contents of a block."""

    block: int
    """The number of the journal's block on the disk."""
    escaped: bool
    """Whether the first four bytes equalled the journal's magic number, and are zeros here."""

    def restore(self, data: bytes) -> bytes:
        """Turn the journal's copy into the block's contents."""
        return struct.pack(">I", MAGIC) + data[4:] if self.escaped else data


@dataclass(slots=True)
class _Transaction:
    sequence: int
    logged: list[tuple[int, Logged]] = field(default_factory=list)
    revoked: list[int] = field(default_factory=list)


class _Journal:
    """An open journal: a ring of blocks."""

    def __init__(self, volume: Volume, inode: Inode) -> None:
        """Raises DisksError."""
        self._volume = volume
        self._extents = find_extents(volume, inode)
        data = volume.read_block(self.place(0))
        magic, kind, _ = _HEADER.unpack_from(data)
        require(
            magic == MAGIC and kind in (SUPERBLOCK_1, SUPERBLOCK_2),
            "its journal inode holds no journal",
        )
        size, self.length, self.first, self.sequence, self.start = struct.unpack_from(
            ">IIIII", data, 12
        )
        self.incompat = struct.unpack_from(">I", data, 40)[0] if kind == SUPERBLOCK_2 else 0
        require(size == volume.block_size, "its journal has blocks of another size")
        require(self.length <= BLOCKS_MAX, "its journal is too large")
        require(0 < self.first < self.length, "its journal has no room")
        require(self.start < self.length, "its journal begins beyond its end")
        require(self.start == 0 or self.start >= self.first, "its journal begins before its room")

    def check_features(self) -> None:
        """Raise MalformedError if the journal uses features that are not read here."""
        if self.incompat & INCOMPAT_FAST_COMMIT:
            raise MalformedError("its journal uses fast commits, which are not read here")
        unknown = self.incompat & ~INCOMPAT_READ
        require(not unknown, f"its journal uses features {unknown:#x}, which are not read here")

    def place(self, number: int) -> int:
        """Return where a block of the journal lies on the disk. Raises MalformedError."""
        low, high = 0, len(self._extents)
        while low < high:
            middle = (low + high) // 2
            extent = self._extents[middle]
            if number >= extent.logical + extent.length:
                low = middle + 1
            else:
                high = middle
        extent = self._extents[low] if low < len(self._extents) else Extent(0, 0, 0)
        require(extent.logical <= number < extent.logical + extent.length, "its journal has a hole")
        return int(extent.physical + number - extent.logical)

    def committed(self) -> Iterator[_Transaction]:
        """Yield the committed transactions, the oldest first. Raises MalformedError."""
        position, left = self.start, self.length - self.first
        sequence = self.sequence
        current = _Transaction(sequence)

        def advance(count: int) -> int:
            # The journal is a ring: go around it once at most.
            nonlocal left
            left -= count
            return int(self.first + (position - self.first + count) % (self.length - self.first))

        while left > 0:
            block = self._volume.read_block(self.place(position))
            magic, kind, found = _HEADER.unpack_from(block)
            if magic != MAGIC or found != sequence:
                return
            self._volume.budget.spend()
            position = advance(1)
            if kind == DESCRIPTOR:
                for target, escaped in self._tags(block):
                    if left <= 0:
                        return
                    current.logged.append((target, Logged(self.place(position), escaped)))
                    position = advance(1)
            elif kind == REVOKE:
                current.revoked += self._revoked(block)
            elif kind == COMMIT:
                yield current
                sequence = (sequence + 1) % _SEQUENCES
                current = _Transaction(sequence)
            else:
                return

    def _tags(self, block: bytes) -> Iterator[tuple[int, bool]]:
        """Yield the number and the escape flag of each block that follows the descriptor."""
        has_sum = self.incompat & (INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3)
        end = len(block) - (4 if has_sum else 0)
        size = self._tag_size()
        at = _HEADER.size
        while at + size <= end:
            if self.incompat & INCOMPAT_CSUM_V3:
                low, flags, high = struct.unpack_from(">III", block, at)
            else:
                low, _, flags = struct.unpack_from(">IHH", block, at)
                high = struct.unpack_from(">I", block, at + 8)[0] if self._is_64bit else 0
            self._volume.budget.spend()
            yield low | (high << 32 if self._is_64bit else 0), bool(flags & FLAG_ESCAPED)
            if flags & FLAG_LAST:
                return
            at += size if flags & FLAG_SAME_UUID else size + 16

    @property
    def _is_64bit(self) -> bool:
        return bool(self.incompat & INCOMPAT_64BIT)

    def _tag_size(self) -> int:
        """Bytes of a tag, as computed by journal_tag_bytes() (fs/jbd2/journal.c)."""
        if self.incompat & INCOMPAT_CSUM_V3:
            return 16
        size = 12 + (2 if self.incompat & INCOMPAT_CSUM_V2 else 0)
        return size if self._is_64bit else size - 4

    def _revoked(self, block: bytes) -> list[int]:
        (used,) = struct.unpack_from(">I", block, _HEADER.size)
        width = 8 if self._is_64bit else 4
        require(used <= len(block), "a block of revocations is too full")
        count = max(0, used - 16) // width
        self._volume.budget.spend(count)
        return list(struct.unpack_from(f">{count}{'Q' if width == 8 else 'I'}", block, 16))


def replay(volume: Volume, inode: Inode) -> dict[int, Logged]:
    """Find the blocks whose latest contents are in the journal, by number. Some may lie beyond the
    end of the file system, because the journal may resize it. Raises DisksError."""
    journal = _Journal(volume, inode)
    if journal.start == 0:
        return {}
    journal.check_features()
    transactions = list(journal.committed())
    # A block that a transaction revokes may hold file data now: copies logged in that transaction
    # or before it are void.
    revoked: dict[int, int] = {}
    for number, transaction in enumerate(transactions):
        revoked |= dict.fromkeys(transaction.revoked, number)
    latest: dict[int, Logged] = {}
    for number, transaction in enumerate(transactions):
        for block, logged in transaction.logged:
            if number > revoked.get(block, -1):
                latest[block] = logged
    return latest
