"""Free space of the host's file systems, checked before it is needed."""

from __future__ import annotations

import os
from pathlib import Path

from quicksand.base.error_text import mib_text
from quicksand.base.errors import DiskSpaceError

DISK_RESERVE = 64 * 1024 * 1024
"""Bytes that must be free at a start: a guest that at once finds the host full is of no use."""


def check_space(root: Path, need: int = 0) -> None:
    """Raise DiskSpaceError if ``need`` bytes would make the file system of ``root`` as good as
    full."""
    found = os.statvfs(root)
    if found.f_bavail * found.f_frsize < need + DISK_RESERVE:
        raise DiskSpaceError(f"{root} has less than {mib_text(need + DISK_RESERVE)} of free space")
