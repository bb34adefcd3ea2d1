"""Extended attributes (attributes.rst), which lie behind an inode's fields and in a block."""

from __future__ import annotations

import struct

from quicksand.disks.diff.ext4.inode import Inode, Volume
from quicksand.disks.diff.reading_limits import require

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
    """Read all extended attributes of an inode. Raises Malformed, ImageError."""
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
