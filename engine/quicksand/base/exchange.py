"""Exchanging two files in one step."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from pathlib import Path

_EXCHANGE = 2  # RENAME_EXCHANGE (linux/fs.h); AT_FDCWD (linux/fcntl.h)
_AT_FDCWD = -100


def exchange(one: Path, other: Path) -> bool:
    """Atomically exchange two files or directories (renameat2(2)); return False where the system
    cannot. Raises OSError."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    result = rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)
    if result == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS):
        return False
    raise OSError(number, os.strerror(number))
