"""A mount: a directory of the host, and its place in the guest."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from quicksand.base.error_text import choose, host_takes
from quicksand.base.errors import ConfigError

CIFS = "cifs"
"""A server of our own (quicksand_smb); the guest's kernel needs cifs and a network card."""
NINEP = "9p"
"""QEMU is the server; the guest's kernel needs 9p. Only at a sandbox's start, and no checkpoint can
be taken while it is mounted."""
MountType = Literal["cifs", "9p"]
TYPES: tuple[str, ...] = get_args(MountType)
READ_ONLY, READ_WRITE = "ro", "rw"
PROTECT = "protect"

MOUNTS_MAX = 16
"""Directories that a sandbox can have mounted at the same time. Each has its own stream through
QEMU and its own server."""

PATH_MAX = 4096
"""Bytes of a path, as Linux has it."""

_MODE = r"(?:ro|rw|protect|9p)"
_WORD = re.compile(rf"(?P<host>.+?):(?P<guest>/.*?)(?::(?P<mode>{_MODE}(?:,{_MODE})*))?", re.DOTALL)
_HIDDEN = ("/", "/proc", "/sys", "/dev", "/run")
"""Directories that the guest's system needs; nothing may be mounted over them or, except for /run,
below them."""


class _Written:
    """The form in which a mount was written, which is not one of its fields."""

    __slots__ = ("was_relative",)
    was_relative: str
    """``host`` as given, if that was relative to the working directory or to a home directory, and
    so cannot be meant for another machine; else ""."""


@dataclass(frozen=True, slots=True)
class Mount(_Written):
    """A directory of the host that the guest sees. ``host`` is made absolute."""

    host: str
    guest: str
    """An absolute path; the directory is made if it is missing."""
    readonly: bool = False
    type: str = CIFS
    fsync: bool = True
    """Whether fsync in the guest reaches the host's disk, or only the host's memory. Then a power
    failure of the host may lose data that a program was told is safe, and unpacking many small
    files takes about half as long. The end of the guest, however sudden, loses none of it."""
    protect: bool = False
    """Whether the guest cannot change files that programs of the host run or obey by themselves,
    such as git's hooks and configuration, and tasks of editors (quicksand_smb/triggers.py)."""

    def __post_init__(self) -> None:
        host = _check_host(self.host)
        given = os.fspath(self.host)
        object.__setattr__(self, "was_relative", "" if given.startswith("/") else given)
        object.__setattr__(self, "host", host)
        object.__setattr__(self, "guest", _check_guest(self.guest))
        for name in ("readonly", "fsync", "protect"):
            if not isinstance(value := getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {value!r}")
        if self.type not in TYPES:
            raise ConfigError(f"the mount type {self.type!r} is unknown: {choose(TYPES)}")
        if not self.fsync and self.type != CIFS:
            raise ConfigError(f"a mount of type {self.type} has fsync always")
        if self.protect and self.type != CIFS:
            raise ConfigError(
                f"a mount of type {self.type} cannot be protected in part",
                hint="mount it read-only, or without 9p",
            )

    def __str__(self) -> str:
        marks = [READ_ONLY] * self.readonly + [PROTECT] * self.protect
        marks += [self.type] * (self.type != CIFS)
        return ":".join((self.host, self.guest, *([",".join(marks)] if marks else [])))


def parse_mount(word: str) -> Mount:
    """Reads a mount as `run -v` takes it: HOST:GUEST, and ``:ro`` for a read-only one, ``:protect``
    for one whose hooks and the like are read-only (`Mount.protect`), ``:9p`` or ``:ro,9p`` for one
    that QEMU serves. Raises ConfigError.

    >>> parse_mount("/data:/mnt/data:ro").readonly
    True
    """
    match = _WORD.fullmatch(word)
    if match is None:
        raise ConfigError(
            f"{word!r} is not HOST:GUEST", hint="as in ./data:/mnt/data, or ./data:/mnt/data:ro"
        )
    marks = (match["mode"] or "").split(",")
    if READ_ONLY in marks and READ_WRITE in marks:
        raise ConfigError(f"{word!r} is to be read-only and not", hint="take ro or rw")
    kind = NINEP if NINEP in marks else CIFS
    protect = PROTECT in marks
    return Mount(match["host"], match["guest"], READ_ONLY in marks, kind, protect=protect)


def decode_mount(value: object) -> Mount:
    """Reads a mount from Python or JSON. Raises ConfigError."""
    if isinstance(value, Mount):
        return value
    if isinstance(value, str):
        return parse_mount(value)
    if isinstance(value, Mapping) and {"host", "guest"} <= set(value) <= set(Mount.__slots__):
        return Mount(**value)
    raise ConfigError(f"{value!r} is not a Mount", hint='Mount("/host/data", "/mnt/data")')


def encode_mounts(mounts: Sequence[Mount]) -> list[dict[str, Any]]:
    """The mounts as JSON."""
    return [asdict(mount) for mount in mounts]


def check_mounts(mounts: Sequence[Mount]) -> None:
    """Raises ConfigError for mounts that cannot exist together."""
    if len(mounts) > MOUNTS_MAX:
        raise ConfigError(f"{len(mounts)} mounts are too many; {MOUNTS_MAX} is the most")
    seen: set[str] = set()
    for mount in mounts:
        if mount.guest in seen:
            raise ConfigError(f"two mounts are to be at {mount.guest}")
        seen.add(mount.guest)


def reached_directories(mounts: Sequence[Mount]) -> str:
    """Returns the directories that mounts let the guest reach, in words."""
    return f"mounts {', '.join(map(str, mounts))}" if mounts else ""


def _check_host(host: object) -> str:
    text = os.fspath(host) if isinstance(host, str | os.PathLike) else host
    if not isinstance(text, str) or not text or not host_takes(text):
        raise ConfigError(f"the host's directory must be a path, not {host!r}")
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - a text to be kept


def _check_guest(guest: object) -> str:
    text = os.fspath(guest) if isinstance(guest, str | os.PathLike) else guest
    if not isinstance(text, str) or not text.startswith("/") or not host_takes(text):
        raise ConfigError(
            f"the guest's directory must be an absolute path, not {guest!r}",
            hint='as in "/mnt/data"',
        )
    path = PurePosixPath(f"/{text.lstrip('/')}")
    if ".." in path.parts or len(str(path).encode("utf-8", "surrogateescape")) >= PATH_MAX:
        raise ConfigError(f"nothing can be mounted at {text!r} in the guest")
    is_below = any(PurePosixPath(tree) in path.parents for tree in _HIDDEN[1:4])
    if str(path) in _HIDDEN or is_below:
        raise ConfigError(
            f"nothing can be mounted at {str(path)!r}: the guest's system needs it",
            hint='choose a directory of its own, as in "/mnt/data"',
        )
    return str(path)
