"""Marks of a directory that tell at little cost whether it has changed."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[int, ...]

NO_STAMP = (0, 0)
"""The stamp of a directory that does not exist."""


def directories(path: Path) -> list[str]:
    """Returns the names of the directories in ``path``, which need not exist. Raises OSError."""
    try:
        with os.scandir(path) as entries:
            return [e.name for e in entries if e.is_dir() and not e.name.startswith(".")]
    except FileNotFoundError:
        return []


def dir_stamp(path: Path) -> Stamp:
    """Returns a stamp that changes with a directory's names; zeros if it is missing. Raises
    OSError."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return NO_STAMP
    return (found.st_ino, found.st_mtime_ns)
