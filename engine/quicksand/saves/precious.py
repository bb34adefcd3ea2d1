"""Refusing to replace precious directories that are no saves, such as a home, because a save moves
the directory that it replaces to the trash."""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

from quicksand.base.errors import SaveError
from quicksand.base.paths import paths

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
