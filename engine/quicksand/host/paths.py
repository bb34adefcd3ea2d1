"""Where things live on this host (docs/internals/layout.md)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from quicksand.errors import DiskSpaceError, PathError
from quicksand.host.files import FULL

APP = "quicksand"

SOCKET_PATH_MAX = 104
"""Longest Unix socket path in bytes that works everywhere: ``sun_path`` has 108 on Linux and 104
on macOS, with the closing NUL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The three places of this user. Each ends in ``quicksand``; none need exist yet."""

    runtime: Path
    """Sockets of running sandboxes; empty after a reboot."""
    data: Path
    """Disks, images, records: what must not be lost."""
    cache: Path
    """What can be made again."""
    memory: Path | None = None
    """Where pages of guest memory go instead of the sandboxes' own directories."""

    @property
    def sandboxes(self) -> Path:
        return self.data / "sandboxes"

    @property
    def saves(self) -> Path:
        """Saves that were not put elsewhere."""
        return self.data / "saves"

    @property
    def images(self) -> Path:
        return self.data / "images"


def paths() -> Paths:
    """The places of this user; the environment variables ``QUICKSAND_*_DIR`` win."""
    memory = os.environ.get("QUICKSAND_MEMORY_DIR")
    return Paths(
        memory=Path(memory).absolute() if memory else None,
        runtime=_place("QUICKSAND_RUNTIME_DIR", _runtime_default()),
        data=_place("QUICKSAND_DATA_DIR", platformdirs.user_data_path(APP)),
        cache=_place("QUICKSAND_CACHE_DIR", platformdirs.user_cache_path(APP)),
    )


def _runtime_default() -> Path:
    """The session's runtime directory where the system has one, else a directory of our own in
    /tmp: one level, so that its owner can be checked."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        if parent and Path(parent).is_dir():
            return Path(parent) / APP
    import tempfile

    return Path(tempfile.gettempdir()) / f"{APP}-{os.getuid()}"


def _place(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(value).absolute() if value else default


def make_private_dir(path: Path) -> Path:
    """Make ``path`` (and parents) so that only this user can enter it; return it.

    Raises PathError when it cannot be made or written, or belongs to another user: the runtime
    directory may lie in /tmp, where others can be first. DiskSpaceError when the disk is full.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
    except OSError as error:
        if error.errno in FULL:
            raise DiskSpaceError(
                f"no space left for {path}", hint="free some disk space and try again"
            ) from error
        raise PathError(
            f"cannot make the directory {path}: {error.strerror}",
            hint="set QUICKSAND_RUNTIME_DIR, QUICKSAND_DATA_DIR or QUICKSAND_CACHE_DIR "
            "to a directory that you can write",
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PathError(
            f"{path} is not a directory of yours", hint="remove it, or choose another place"
        )
    if found.st_mode & 0o077:
        path.chmod(0o700)
    if not os.access(path, os.W_OK | os.X_OK):
        raise PathError(f"the directory {path} cannot be written", hint=f"chmod u+rwx {path}")
    return path
