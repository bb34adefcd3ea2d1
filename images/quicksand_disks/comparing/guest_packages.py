"""The packages of the guest's system that were added, removed or exchanged for another version, by
the databases of dpkg and apk on both disks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from quicksand_disks.changes import FileChange, FileType
from quicksand_disks.comparing.versions import Version, VersionReader

DATABASE_MAX: Final = 32 * 1024 * 1024
"""Bytes of the largest database that is read: dpkg's has some 1 KiB for each package; apk's, which
lists the packages' files, 4 KiB on average."""

PACKAGES_MAX: Final = 50_000
"""The most packages of one database that are read, many times those of a full desktop."""

CHECK_EVERY: Final = 500
"""Packages between two looks whether anybody still waits for the result."""

_WORD: Final = re.compile(rb"[!-~]{1,200}")
"""A name, a version or an architecture: printable ASCII without spaces, 200 characters at most."""

_NOT_INSTALLED: Final = frozenset({b"not-installed", b"config-files"})
"""States of dpkg in which no file of a package is there, except perhaps its configuration."""

Found = tuple[str, str, str]
"""A package's name, architecture and version."""


class PackageChangeKind(StrEnum):
    """The kind of change of a package."""

    ADDED = "added"
    REMOVED = "removed"
    VERSION_CHANGED = "version-changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageChange:
    """One package that differs. The guest chose all text; it is printable ASCII."""

    name: str
    """Its name, with ``:`` and its architecture if the disks have the package for several."""
    before: str | None
    """Its version; None if it was added."""
    after: str | None
    """None if it was removed."""

    @property
    def kind(self) -> PackageChangeKind:
        if self.before is None:
            return PackageChangeKind.ADDED
        if self.after is None:
            return PackageChangeKind.REMOVED
        return PackageChangeKind.VERSION_CHANGED


def package_changes(
    reader: VersionReader,
    changes: Iterable[FileChange],
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[str, Sequence[PackageChange]]]:
    """Yield the path of each database of packages among ``changes``, with the packages that differ,
    sorted by name. A database that is larger than DATABASE_MAX, or not a file, is skipped.
    ``check`` is called now and then, and may raise. Raises DisksError."""
    for change in changes:
        parse = _DATABASES.get(change.path)
        if parse is None or not {change.type_before, change.type_after} <= {FileType.FILE, None}:
            continue
        found = reader.read(change.path, most=DATABASE_MAX)
        sides = found.before, found.after
        if all(side is None or side.data is not None for side in sides):
            yield change.path, _compare(*(_packages(side, parse, check) for side in sides))


def _packages(
    side: Version | None,
    parse: Callable[[bytes], Found | None],
    check: Callable[[], None],
) -> dict[str, dict[str, str]]:
    """Return the versions of the packages of a database by name and architecture."""
    found: dict[str, dict[str, str]] = {}
    for number, entry in enumerate(_entries(side.data if side and side.data else b"")):
        if number % CHECK_EVERY == 0:
            check()
        if number >= PACKAGES_MAX:
            break
        if (package := parse(entry)) is not None:
            name, arch, version = package
            found.setdefault(name, {})[arch] = version
    return found


def _entries(data: bytes) -> Iterator[bytes]:
    """Yield the entries of a database, which blank lines separate."""
    start = 0
    while start < len(data):
        end = data.find(b"\n\n", start)
        end = len(data) if end < 0 else end
        yield data[start:end]
        start = end + 2


def _parse_dpkg(entry: bytes) -> Found | None:
    state = _field(rb"Status", entry).split()
    if len(state) != 3 or state[2] in _NOT_INSTALLED:
        return None
    return _found(entry, rb"Package", rb"Architecture", rb"Version")


def _parse_apk(entry: bytes) -> Found | None:
    return _found(entry, rb"P", rb"A", rb"V")


_DATABASES: Final[Mapping[str, Callable[[bytes], Found | None]]] = MappingProxyType(
    {
        "/var/lib/dpkg/status": _parse_dpkg,
        "/lib/apk/db/installed": _parse_apk,
        "/usr/lib/apk/db/installed": _parse_apk,
    }
)
"""The parsers by path: dpkg's, and apk's, also where /lib is a link."""


def _found(entry: bytes, name: bytes, arch: bytes, version: bytes) -> Found | None:
    words = [_field(key, entry) for key in (name, arch, version)]
    if not all(_WORD.fullmatch(word) for word in (words[0], words[2])):
        return None
    texts = [word.decode("ascii") if _WORD.fullmatch(word) else "" for word in words]
    return texts[0], texts[1], texts[2]


def _field(key: bytes, entry: bytes) -> bytes:
    """Return the value of ``key`` in an entry; b"" if there is none."""
    found = re.search(rb"^" + key + rb":[ \t]*([^\n]*)", entry, re.MULTILINE)
    return found[1].rstrip() if found else b""


def _compare(
    before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]
) -> Sequence[PackageChange]:
    changes = []
    for name in sorted(before.keys() | after.keys()):
        a, b = before.get(name, {}), after.get(name, {})
        if a == b:
            continue
        if len(a) <= 1 and len(b) <= 1:  # it may be for another architecture than before
            pairs = [(name, next(iter(a.values()), None), next(iter(b.values()), None))]
        else:
            archs = sorted(a.keys() | b.keys())
            pairs = [(f"{name}:{arch}", a.get(arch), b.get(arch)) for arch in archs]
        changes += [
            PackageChange(name=shown, before=old, after=new)
            for shown, old, new in pairs
            if old != new
        ]
    return tuple(changes)
