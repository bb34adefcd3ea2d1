"""Names in directories (dynamic.rst). An index of hashes hides in entries that name nothing, so a
directory with one is read as any other."""

from __future__ import annotations

import struct

from quicksand.diskdiff.bounds import Budget, Malformed, require

NAMES_MAX = 1_000_000
"""In one directory; our disks have half as many inodes."""

_ENTRY = struct.Struct("<IHBB")
_DOTS = (b".", b"..")


def read_entries(
    block: bytes, names: dict[bytes, int], *, inodes: int, has_types: bool, budget: Budget
) -> None:
    """Add what a block names: name -> inode. Of two equal names the first one counts.

    ``has_types``: the upper byte of a name's length is a type instead. Raises Malformed.
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
            raise Malformed("a directory entry has an impossible length")
        found += 1
        if inode:
            if not has_types:
                name_length |= high << 8
            name = block[at + 8 : at + 8 + name_length]
            if name not in _DOTS and name not in names:
                require(8 + name_length <= length and name_length <= 255, "a name is too long")
                require(name and b"/" not in name and b"\0" not in name, "a name is impossible")
                require(inode <= inodes, f"there is no inode {inode}, which a directory names")
                names[name] = inode
        at += length
    budget.spend(found)
    require(len(names) <= NAMES_MAX, "a directory has too many names")
