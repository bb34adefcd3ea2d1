"""Directories that a store has made for its own work, told apart from others by their names."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from pathlib import Path

from quicksand.base.removal import remove
from quicksand.saves.save_places import READY

GONE = ".gone-"

OURS = re.compile(rf"(?:{re.escape(READY)}|{re.escape(GONE)})?[0-9a-f]{{12}}")
"""Names that a store gives; nothing else is moved or removed."""


def is_own_dir(path: Path) -> bool:
    """Whether it is a directory that belongs to this user, not a link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def own_directories(directory: Path) -> list[Path]:
    """Return the subdirectories whose names are those that a store gives."""
    try:
        found = sorted(directory.iterdir())
    except OSError:
        return []
    return [path for path in found if OURS.fullmatch(path.name) and is_own_dir(path)]


def remove_tree(path: Path) -> None:
    """Remove a tree; the next `recover` tries again with files that cannot be removed now."""
    with contextlib.suppress(OSError):
        remove(path)
