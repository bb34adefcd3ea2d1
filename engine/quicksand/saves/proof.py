"""The proof that a store may move or remove a directory: that it is a save, or was made by a store
for its own work. It is in the directory itself, not in anything around it.

A directory that is neither and would be replaced by a save is refused if it is precious, such as a
home.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from quicksand.base.errors import SaveError
from quicksand.base.paths import paths
from quicksand.base.removal import MARK, marked_id, remove
from quicksand.saves.ownership import IMPORTED
from quicksand.saves.save_manifest import MANIFEST, OVERLAYS, read_manifest
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


_PARTS = {MANIFEST, OVERLAYS, IMPORTED, MARK}
_OVERLAY = re.compile(r"[0-9]{1,4}\.qcow2")


def why_no_save(path: Path) -> str:
    """Why ``path`` is not proven to be a save; "" if it is, or is an empty directory.

    A save of ours has our mark, in whatever state the rest is. One that was copied from elsewhere
    has a readable manifest, and no other files than a save has.
    """
    if not is_own_dir(path):
        return "it is no directory of yours, or a link to one"
    if marked_id(path) is not None:
        return ""
    try:
        names = set(os.listdir(path))  # noqa: PTH208
        overlays = os.listdir(path / OVERLAYS) if OVERLAYS in names else []  # noqa: PTH208
    except OSError:
        return "it cannot be read"
    if not names:
        return ""
    try:
        read_manifest(path)
    except SaveError:
        return f"it has neither a mark of ours nor a {MANIFEST} of a save"
    others = sorted({*names} - _PARTS) + sorted(o for o in overlays if not _OVERLAY.fullmatch(o))
    return f"{others[0]!r} in it is no part of a save" if others else ""


REPOSITORIES = (".git", ".hg", ".jj", ".svn")

MOUNTS = Path("/proc/self/mountinfo")


def refuse_precious(path: Path, name: str) -> None:
    """Raise SaveError if ``path`` belongs to another user, or is or contains a home, a mount point,
    the current directory or one of quicksand's directories, or is a repository. Links are not
    followed."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise SaveError(f"{path} cannot be looked at: {error.strerror}") from error
    if reason := _why_precious(path, found):
        raise SaveError(
            f"the save {name!r} cannot take the place of {path}, which {reason}",
            hint="choose another name, or another workspace",
        )


def _why_precious(path: Path, found: os.stat_result) -> str:
    if found.st_uid != os.getuid():
        return "belongs to another user"
    if not stat.S_ISDIR(found.st_mode):
        return ""
    for mark in REPOSITORIES:
        if os.path.lexists(path / mark):
            return f"is a repository: it has {mark}"
    real = path.resolve()
    for what, place in _places():
        if place == real:
            return f"is {what}"
        if place.is_relative_to(real):
            return f"contains {what}"
    return ""


def _places() -> Iterator[tuple[str, Path]]:
    """Directories that must stay where they are."""
    with contextlib.suppress(KeyError):
        yield "your home", Path(pwd.getpwuid(os.getuid()).pw_dir).resolve()
    with contextlib.suppress(RuntimeError):
        yield "your home", Path.home().resolve()
    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
        yield "the current directory", Path.cwd().resolve()
    ours = paths()
    for place in (ours.data, ours.cache, ours.runtime):
        yield "a directory of quicksand's", place.resolve()
    for mount in _mount_points():
        yield "a mount point", mount


def _mount_points() -> Iterator[Path]:
    try:
        lines = MOUNTS.read_bytes().splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        # Spaces and the like are escaped as octal numbers (proc_pid_mountinfo(5)).
        place = line.split(b" ")[4].decode("unicode_escape").encode("latin-1")
        yield Path(os.fsdecode(place))
