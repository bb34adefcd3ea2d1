"""Finding files and directories of ours by listing.

Anything that a listing finds may be somebody else's. So before a file is deleted, renamed or
counted as ours, this must be proven: the directory is this user's, not a link, and nobody else can
write to it; the name is one that we give; it is of the expected kind, not a link, and this user's.
(`removal` asks for more before it deletes a directory.)
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from quicksand.base.removal import open_own

ANY_ID = re.compile(r"[0-9a-f]{8,64}")
"""The name of a directory, an id or a digest."""

TEMPORARY = r"\.[0-9a-f]{8}"
"""The ending of a temporary name beside the final one (`files.write_json`, `sharing`)."""


def own_files(directory: Path, names: re.Pattern[str]) -> list[Path]:
    """The regular files of ours in a directory whose whole names match, sorted. Empty if the
    directory is not ours or does not exist."""
    return _own(directory, names, stat.S_IFREG)


def own_directories(directory: Path, names: re.Pattern[str]) -> list[Path]:
    """Like `own_files`, but the directories."""
    return _own(directory, names, stat.S_IFDIR)


def own_sockets(directory: Path, names: re.Pattern[str]) -> list[Path]:
    """Like `own_files`, but the sockets."""
    return _own(directory, names, stat.S_IFSOCK)


def _own(directory: Path, names: re.Pattern[str], kind: int) -> list[Path]:
    return sorted(directory / name for name in _entries(directory, names, kind))


def _entries(directory: Path, names: re.Pattern[str], kind: int) -> Iterator[str]:
    try:
        descriptor = open_own(directory)
    except OSError:
        return
    try:
        for name in os.listdir(descriptor):
            if names.fullmatch(name) and _is_own(descriptor, name, kind):
                yield name
    finally:
        os.close(descriptor)


def _is_own(directory: int, name: str, kind: int) -> bool:
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:  # it is gone
        return False
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.geteuid()
