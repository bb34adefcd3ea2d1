"""Disks of machines as files: qcow2 layers and ext4 within them, read by this code alone.

No QEMU is needed, nothing is mounted, and no program is run. Whoever could write to a disk is taken
to be hostile: every number is checked, every loop is bounded, and an error is always a
`DisksError`.

The names here are about a file that has not been opened by anything yet: its header. Further
modules are::

    qcow2       layers as one disk, their merging, and new overlays
    ext4        a file system and its files, its journal included
    comparing   the files, lines and packages that differ between two disks, and patches
    changes     the values that comparing returns, without its code
    zstd        Zstandard within bounds
"""

from quicksand_disks.errors import (
    DiskFileError,
    DisksError,
    ImpossibleDiskError,
    LongNameError,
    MalformedError,
    UnfitDiskError,
)
from quicksand_disks.qcow2_header import (
    HEAD,
    VIRTUAL_SIZE_MAX,
    ForeignDisk,
    Qcow2Header,
    check_backing_name,
    check_qcow2,
    check_snapshots,
    is_used,
    parse_header,
)

__all__ = [
    "HEAD",
    "VIRTUAL_SIZE_MAX",
    "DiskFileError",
    "DisksError",
    "ForeignDisk",
    "ImpossibleDiskError",
    "LongNameError",
    "MalformedError",
    "Qcow2Header",
    "UnfitDiskError",
    "check_backing_name",
    "check_qcow2",
    "check_snapshots",
    "is_used",
    "parse_header",
]
