"""What tells that a directory has changed, at little cost."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[int, ...]

NO_STAMP = (0, 0)
"""That of a directory that is not there."""


def directories(path: Path) -> list[str]:
    """Returns the names of the directories in one, which need not exist. Raises OSError."""
    try:
        with os.scandir(path) as entries:
            return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except FileNotFoundError:
        return []


def dir_stamp(path: Path) -> Stamp:
    """Returns what changes with what is in a directory; zeros if there is none. Raises OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return NO_STAMP
    return (found.st_ino, found.st_mtime_ns)
