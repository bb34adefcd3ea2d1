"""The directories of the host that are mounted: each is known by its device and inode.

A guest that may write a directory may replace anything in it, for instance by a link, and one mount
can lie in another. So links are followed only once, when a person names a directory; the directory
to which they lead is remembered (`KnownDirectory`), and from then on opened by a path without
links. The server is given that descriptor, never the path.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from quicksand.base.error_text import reason_of
from quicksand.base.errors import MountError
from quicksand.base.fields import JsonRecord, read_by
from quicksand.base.files import read_json, write_json
from quicksand.base.paths import Paths
from quicksand.base.processes import boot_id
from quicksand.base.remedies import Remedy, Words
from quicksand.records.layout import directories_elsewhere
from quicksand.records.mount import Mount

LINKS_MAX = 40
"""The most links in a path, as in Linux (path_resolution(7))."""
REMEMBERED_MAX = 256
"""The most directories remembered for one sandbox; beyond that, the oldest are forgotten."""
DEPTH_MAX = 2048
"""Directories above one; a path of 4096 bytes has no more names."""

_LOOK = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = _LOOK | os.O_NOFOLLOW

Inode = tuple[int, int]
"""A device and an inode on it."""


def _read_path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError("bad record of a directory: its path is none")
    return value


def _read_number(value: object) -> int:
    if type(value) is not int:
        raise ValueError("bad record of a directory: a field has the wrong type")
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDirectory(JsonRecord):
    """A directory that was mounted before."""

    WHAT = "bad record of a directory"

    path: str = field(metadata=read_by(_read_path))
    """Its path at that time, without a link."""
    device: int = field(metadata=read_by(_read_number))
    inode: int = field(metadata=read_by(_read_number))
    boot: str
    """The boot of the host in which its device had this number: others may give it another."""

    def is_of(self, found: os.stat_result) -> bool:
        """Whether the given inode is that of this directory."""
        is_same_boot = self.boot == boot_id()
        return found.st_ino == self.inode and (found.st_dev == self.device or not is_same_boot)


def find(mount: Mount, written: Collection[str] = ()) -> KnownDirectory:
    """Return the directory that a person has just named, wherever the links in its path lead. A
    link in one of the directories ``written`` (paths without links), which a guest may write, is
    not followed: nobody knows whose link it is. Blocks for I/O. Raises MountError."""
    try:
        path = _resolve(mount, written)
        descriptor = _walk(path)
    except OSError as error:
        raise _not_possible(mount, error) from error
    try:
        found = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return KnownDirectory(path=path, device=found.st_dev, inode=found.st_ino, boot=boot_id())


def _resolve(mount: Mount, written: Collection[str]) -> str:
    """Return the path of a mount without links. Raises OSError, MountError."""
    left = mount.host.split("/")[::-1]
    at, links = "/", 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)  # noqa: PTH120 - a text
            continue
        below = os.path.join(at, name)  # noqa: PTH118 - a text
        if not os.path.islink(below):  # noqa: PTH114 - a text
            at = below
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink(below)  # noqa: PTH115 - a text
        for place in written:
            if f"{at}/".startswith(f"{place.rstrip('/')}/"):
                raise MountError(
                    f"{mount.host} leads through {below}, a link in a directory that the sandbox "
                    f"may write: it may have made it. It leads to {target}",
                    hint="name the directory itself, if that is meant",
                )
        left += target.split("/")[::-1]
        at = "/" if target.startswith("/") else at
    return at


def _not_possible(mount: Mount, error: OSError) -> MountError:
    if error.errno == errno.ENOTDIR and os.path.exists(mount.host):  # noqa: PTH110 - a text
        return MountError(
            f"{mount.host} is no directory", hint="mount the directory that it lies in"
        )
    return MountError(
        f"{mount.host} cannot be mounted: {error.strerror}",
        hint="the host's side of a mount must be a directory that exists",
    )


@contextmanager
def opened(mount: Mount, known: KnownDirectory) -> Iterator[int]:
    """Hold a descriptor of a directory that was mounted before. It is that very directory, and no
    link was followed. Blocks for I/O. Raises MountError."""
    try:
        descriptor = _walk(known.path)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP) and (link := _first_link(known.path)):
            raise MountError(
                f"{mount.host} is not what was mounted: {link} is a link now, which a guest may "
                "have made, and is not followed",
                hint=Words(
                    "look where it leads; if that is meant, ", Remedy("mount"), " mounts that one"
                ),
            ) from error
        raise _not_possible(mount, error) from error
    try:
        if not known.is_of(os.fstat(descriptor)):
            raise MountError(
                f"{mount.host} is another directory than the one that was mounted",
                hint=Words("if it is meant, ", Remedy("mount"), " mounts it"),
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _walk(path: str) -> int:
    """Open a directory by a path in which no name is a link. Raises OSError."""
    at = os.open("/", _LOOK)
    try:
        for name in filter(None, path.split("/")):
            below = os.open(name, _NO_LINK, dir_fd=at)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def _first_link(path: str) -> str:
    """Return the first link that is in a path now; "" if there is none."""
    names = list(filter(None, path.split("/")))
    above = ("/" + "/".join(names[:depth]) for depth in range(1, len(names) + 1))
    return next((one for one in above if os.path.islink(one)), "")  # noqa: PTH114 - a text


# Our own directories


def check_directory(
    mount: Mount,
    places: Paths,
    known: KnownDirectory | None = None,
    *,
    written: Collection[str] = (),
) -> KnownDirectory:
    """The directory of a mount: ``known``, or else what its path leads to (`find`). Blocks for I/O.

    Raises MountError if there is none, if it is another than ``known``, and if it is ours: nothing
    at or below our own directories is given to a guest, and directories that contain them are given
    read-only. They are recognised by their inodes, not by their names.
    """
    wanted = known or find(mount, written)
    with opened(mount, wanted) as descriptor:
        line = list(_upwards(descriptor))
    for place in (places.data, places.cache, places.runtime, *directories_elsewhere(places)):
        own = _line_of(place)
        if own.is_there and own.line[0] in line:
            raise MountError(
                f"{mount.host} is one of quicksand's own directories, or lies in one ({place}), "
                "which no guest may see",
                hint="mount a directory of your own",
            )
        if line[0] in own.line and not mount.readonly:
            raise MountError(
                f"{mount.host} holds quicksand's own files ({place}), which no guest may change",
                hint="mount it read-only, or a directory in it",
            )
    device, inode = line[0]
    return KnownDirectory(path=wanted.path, device=device, inode=inode, boot=boot_id())


@dataclass(frozen=True, slots=True)
class _Line:
    """A directory and all above it, the lowest first."""

    line: list[Inode]
    is_there: bool
    """Whether the directory exists; if not, this line begins with the lowest one that does."""


def _line_of(place: Path) -> _Line:
    is_there = True
    while True:
        try:
            descriptor = os.open(place, _LOOK)
        except OSError:
            if place == place.parent:
                return _Line([], False)
            place, is_there = place.parent, False
            continue
        try:
            return _Line(list(_upwards(descriptor)), is_there)
        finally:
            os.close(descriptor)


def _upwards(descriptor: int) -> Iterator[Inode]:
    """Yield the inodes of an open directory and those above, up to the root or the last visible."""
    at = os.dup(descriptor)
    try:
        before: Inode | None = None
        for _ in range(DEPTH_MAX):
            found = os.fstat(at)
            here = (found.st_dev, found.st_ino)
            if here == before:
                return
            yield here
            before = here
            try:
                above = os.open("..", _LOOK, dir_fd=at)
            except PermissionError:
                return
            os.close(at)
            at = above
    finally:
        os.close(at)


# The directories remembered for a sandbox


def is_there(known: KnownDirectory) -> bool:
    """Whether a directory is still where it was. Blocks for I/O."""
    try:
        return known.is_of(Path(known.path).lstat())
    except PermissionError:
        return True  # nobody can say
    except OSError:
        return False


class Directories:
    """The directories that a sandbox has had mounted so far, by the paths that a person named. They
    are kept in a file in the sandbox's own directory; without one, as in older sandboxes, all are
    new."""

    def __init__(self, file: Path, places: Paths) -> None:
        self._file = file
        self._places = places

    def check(self, mount: Mount) -> KnownDirectory:
        """Return the directory of an earlier mount. Blocks for I/O. Raises MountError."""
        before = self._read().get(mount.host)
        known = check_directory(mount, self._places, before)
        if before != known:
            self._write(mount, known)
        return known

    def choose(self, mount: Mount, written: Collection[str] = ()) -> KnownDirectory:
        """Return the directory of a mount that a person requests now; from now on its path means
        this directory. ``written``: the directories that the sandbox may write now. Blocks for I/O.
        Raises MountError, HostError."""
        known = check_directory(mount, self._places, written=written)
        if self._read().get(mount.host) != known:
            self._write(mount, known)
        return known

    def _read(self) -> dict[str, KnownDirectory]:
        try:
            values = read_json(self._file).get("directories")
            return {
                host: KnownDirectory.from_json(value) for host, value in dict(values or {}).items()
            }
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError) as error:
            raise MountError(
                f"{self._file} does not say what was mounted: {reason_of(error)}",
                hint="remove that file if the paths of the mounts lead where they should",
            ) from error

    def _write(self, mount: Mount, known: KnownDirectory) -> None:
        found = self._read()
        found.pop(mount.host, None)
        found[mount.host] = known
        kept = list(found.items())[-REMEMBERED_MAX:]
        write_json(self._file, {"directories": {host: asdict(one) for host, one in kept}})
