"""The directories of this user (docs/internals/layout.md)."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from quicksand.base.errors import DiskSpaceError, PathError
from quicksand.base.files import FULL
from quicksand.base.removal import NotOursError, open_own

if sys.platform != "linux":
    import platformdirs

APP = "quicksand"

SHARED_IMAGES = "QUICKSAND_SHARED_IMAGES"
"""The variable which says that another data directory owns the images, which are only read here."""

TEMPORARY = Path("/tmp")  # noqa: S108
TEMPORARY_TOO = Path("/var/tmp")  # noqa: S108
IN_MEMORY = Path("/dev/shm")  # noqa: S108
"""A tmpfs on every Linux. A sandbox has some fifty sockets, which take 5 ms to make on ext4, and
ten times that after as many were removed within the last seconds."""
SYSTEMD = Path("/run/systemd/system")
"""It exists where systemd is the init system (sd_booted(3))."""

SOCKET_PATH_MAX = 104
"""Bytes of a Unix socket path, with its NUL, that work everywhere: ``sun_path`` has 108 on Linux
(unix(7)) and 104 on macOS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The directories of this user. None of them need exist yet."""

    runtime: Path
    """Sockets of running sandboxes; empty after a reboot."""
    data: Path
    """Disks, images and records, which must not be lost."""
    cache: Path
    """Files that can be made again."""
    memory: Path | None = None
    """A directory for guest memory; None keeps it in the sandboxes' own directories."""

    @property
    def sandboxes(self) -> Path:
        return self.data / "sandboxes"

    @property
    def engine_log(self) -> Path:
        """The log for matters of no single sandbox (effort.py)."""
        return self.data / "engine.log"

    @property
    def saves(self) -> Path:
        """The saves that belong to no workspace."""
        return self.data / "saves"

    @property
    def images(self) -> Path:
        """The image store. It may be a link that this user has made, as to a larger disk."""
        return _own_target(self.data / "images")


def paths() -> Paths:
    """Return the directories of this user; the variables ``QUICKSAND_*_DIR`` take precedence.
    Raises PathError if one would be in a home directory that is not known."""
    memory = os.environ.get("QUICKSAND_MEMORY_DIR")
    return Paths(
        memory=memory_place(Path(memory)) if memory else None,
        runtime=_place("QUICKSAND_RUNTIME_DIR") or _runtime_default(),
        data=_place("QUICKSAND_DATA_DIR")
        or _usual("XDG_DATA_HOME", ".local/share", "user_data_path"),
        cache=_place("QUICKSAND_CACHE_DIR")
        or _usual("XDG_CACHE_HOME", ".cache", "user_cache_path"),
    )


def config_place() -> Path:
    """Return the directory of the user's config. Raises PathError if the home directory is not
    known."""
    return _usual("XDG_CONFIG_HOME", ".config", "user_config_path")


def _usual(variable: str, below_home: str, elsewhere: str) -> Path:
    """Return our directory in that of the XDG base directory specification; on other systems, in
    the one from platformdirs' function ``elsewhere``."""
    if sys.platform != "linux":
        there = getattr(platformdirs, elsewhere)  # pyright: ignore[reportPossiblyUnboundVariable]  # imported here
        return Path(there(APP))
    base = os.environ.get(variable, "")
    # The specification says to ignore relative paths.
    return (Path(base) if base.startswith("/") else home() / below_home) / APP


def _runtime_default() -> Path:
    """Return a directory in the session's runtime directory, in the user's directory for temporary
    files, or in memory: directly in it, so that its owner can be checked."""
    for parent in (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}"):
        # After `su`, XDG_RUNTIME_DIR still names the earlier user's directory.
        if parent and _is_ours(Path(parent).resolve()):
            return Path(parent) / APP
    name = f"{APP}-{os.getuid()}"
    for parent in (os.environ.get("TMPDIR"), os.environ.get("TEMP"), os.environ.get("TMP")):
        if parent and _can_be_used(Path(parent)):
            return Path(parent).absolute() / name
    on_disk, in_memory = TEMPORARY / name, IN_MEMORY / name
    # systemd empties users' files in memory when they log out (RemoveIPC= in logind.conf(5)).
    if not SYSTEMD.exists() and _can_be_used(IN_MEMORY):
        # An earlier version made one on disk, whose sandboxes must be found. Other users' files
        # there must not hide ours.
        return in_memory if _is_ours(in_memory) or not _is_ours(on_disk) else on_disk
    return on_disk if _can_be_used(TEMPORARY) else TEMPORARY_TOO / name


def _can_be_used(directory: Path) -> bool:
    if not os.access(directory, os.W_OK | os.X_OK) or not directory.is_dir():
        return False
    return not is_exposed(directory)


def is_exposed(directory: Path) -> bool:
    """Whether everybody may rename and remove others' files in a directory, unlike in /tmp, whose
    sticky bit forbids that (inode(7)). Raises OSError."""
    mode = directory.stat().st_mode
    return bool(mode & stat.S_IWOTH) and not mode & stat.S_ISVTX


def is_for_all(directory: Path) -> bool:
    """Whether a directory is meant for everybody's files, like /tmp and /dev/shm: all may write to
    it, the sticky bit protects its files, and it is not a link."""
    try:
        mode = directory.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISDIR(mode) and bool(mode & stat.S_IWOTH) and bool(mode & stat.S_ISVTX)


def require_protected(directory: Path) -> None:
    """Raise NotOursError if others could replace this user's files in a directory. Raises
    OSError."""
    if is_exposed(directory):
        mode = stat.S_IMODE(directory.stat().st_mode)
        why = f"all can rename what is in {directory} (mode {mode:o}, without the sticky bit)"
        raise NotOursError(directory, why)


def _is_ours(directory: Path) -> bool:
    try:
        found = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def memory_place(named: Path) -> Path:
    """Return the directory that the user named for memory or, if others can write to it, as to
    /dev/shm, a directory of our own in it."""
    real = named.absolute().resolve()
    try:
        os.close(open_own(real))
    except NotOursError:
        return real / f"{APP}-{os.getuid()}"
    except OSError:
        return real  # it does not exist yet, or making files in it will report the error
    return real


def _place(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(value).absolute() if value else None


def make_private_dir(path: Path) -> Path:
    """Make ``path`` and its parents for this user only, unless they exist, and return it. Every
    place of ours is opened by this function.

    Raises PathError if it cannot be made or written, is a link, belongs to another user or can be
    written by others (in /tmp, somebody else could make the runtime directory first), or if it
    would be made where others could replace it, and DiskSpaceError if the disk is full.
    """
    try:
        for place in (*reversed(path.parents), path):
            if not place.exists():
                require_protected(place.parent)
                place.mkdir(mode=0o700, exist_ok=True)
        os.close(open_own(path))
    except NotOursError as error:
        raise PathError(
            f"{path} cannot be used: {error.why}",
            hint="have a look at it; then mend or remove it, or choose another place",
        ) from error
    except OSError as error:
        if error.errno in FULL:
            raise DiskSpaceError(f"no space left for {path}") from error
        raise PathError(
            f"cannot make the directory {path}: {error.strerror}",
            hint="set QUICKSAND_RUNTIME_DIR, QUICKSAND_DATA_DIR or QUICKSAND_CACHE_DIR "
            "to a directory that you can write",
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise PathError(f"the directory {path} cannot be written", hint=f"chmod u+rwx {path}")
    return path


def _own_target(path: Path) -> Path:
    """Return the target of a link of this user's in a directory of this user's; any other path
    unchanged. This is for places in the data directory only: a link from a cloned repository is
    this user's, too."""
    try:
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode) and found.st_uid == os.geteuid():
            os.close(open_own(path.parent.resolve()))
            return path.resolve()
    except (OSError, RuntimeError):
        pass  # a cycle of links, for example: opening it reports the error
    return path


def home() -> Path:
    """Return the home directory. Raises PathError if the system knows none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise PathError(
            "this user has no home directory: the system knows none, and HOME is not set",
            hint="set HOME, or QUICKSAND_DATA_DIR, QUICKSAND_CACHE_DIR and QUICKSAND_STATE_DIR",
        ) from error


def expand(path: str) -> Path:
    """Return a path that a user wrote, with its ``~`` expanded. Raises PathError if the home
    directory that it means is unknown."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise PathError(
            f"{path}: the home directory that it means is not known", hint="write it in full"
        ) from error
