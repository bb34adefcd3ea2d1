"""A reader of ext4 (Linux Documentation/filesystems/ext4; its journal.rst for jbd2).

Checksums are not verified: this is not fsck. Everything else is checked and bounded, because root
in the guest can write anything to its disk. Bad contents raise `MalformedError`.
"""

from quicksand_disks.changes import FileType
from quicksand_disks.ext4.filesystem import (
    ROOT,
    FileSystem,
    Finder,
    content,
    opened_file_system,
    read_from_disk,
)
from quicksand_disks.ext4.inode import Extent, Inode, find_extents, read_attributes
from quicksand_disks.reading_limits import Budget

__all__ = [
    "ROOT",
    "Budget",
    "Extent",
    "FileSystem",
    "FileType",
    "Finder",
    "Inode",
    "content",
    "find_extents",
    "opened_file_system",
    "read_attributes",
    "read_from_disk",
]
