"""The directories in which sandboxes keep the memory files of their checkpoints: their own, or one
on another volume."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from quicksand.base.files import map_os_errors
from quicksand.base.paths import Paths, is_for_all, make_private_dir, memory_place
from quicksand.base.removal import make_marked, remove


def make_elsewhere(place: Path) -> Path:
    """Make a directory for memory files in another place, unless it exists, and return it. Raises
    PathError if somebody else has made it or a directory above it, OSError."""
    if not is_for_all(place.parent):  # as for sandboxes of earlier versions, in /dev/shm itself
        make_private_dir(place.parent)
    if not os.path.lexists(place):
        with map_os_errors(place):
            make_marked(place)
    return make_private_dir(place)


def memory_directory(paths: Paths, named: str | None) -> Path | None:
    """Return the directory for the memory files of a sandbox whose config has ``named``; None for
    the sandbox's own."""
    return paths.memory if named is None else memory_place(Path(named))


def memory_directories(paths: Paths) -> set[Path]:
    """Every directory in which sandboxes of this user keep memory files. Blocks for I/O."""
    found = {paths.memory} if paths.memory is not None else set()
    with contextlib.suppress(OSError):
        for root in paths.sandboxes.iterdir():
            with contextlib.suppress(OSError):  # most are directories, not links
                found.add((root / "memory").readlink().parent)
    return found


def remove_memory(root: Path) -> None:
    """Remove the memory files of the sandbox in ``root`` if they are in another place. Called
    before the directory itself is removed."""
    memory = root / "memory"
    if memory.is_symlink():
        with contextlib.suppress(OSError):  # a directory without quicksand's mark is not removed
            remove(memory.readlink())
