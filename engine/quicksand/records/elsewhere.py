"""Directories of a sandbox that may lie elsewhere: that of the memory files of its checkpoints, on
another volume, and that of its sockets. The latter is noted in its directory, since a client with
another TMPDIR or QUICKSAND_RUNTIME_DIR would look elsewhere."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from quicksand.base.files import map_os_errors
from quicksand.base.paths import Paths, is_for_all, make_private_dir, memory_place
from quicksand.base.processes import is_same_place
from quicksand.base.removal import NotOursError, belongs_to, make_marked, remove

LINK = "runtime"


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


def find_place(sandbox: Path, usual: Path) -> Path:
    """Return the runtime directory of the sandbox in ``sandbox``: the one where it was started, if
    that exists and its mark names this sandbox (a copied data directory links to another
    sandbox's); else ``usual``."""
    try:
        noted = os.readlink(sandbox / LINK)  # noqa: PTH115 - no `Path` for most: `ps` asks of all
    except OSError:
        return usual
    if noted == os.fspath(usual):
        return usual
    try:
        is_its = is_same_place(belongs_to(Path(noted)), sandbox)
    except (NotOursError, OSError):
        return usual
    return Path(noted) if is_its else usual


def note_place(sandbox: Path, runtime: Path) -> None:
    """Note its place. Raises OSError."""
    temporary = sandbox / f".{LINK}.{os.urandom(4).hex()}"
    temporary.symlink_to(runtime)
    temporary.replace(sandbox / LINK)
