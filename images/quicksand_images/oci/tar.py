"""Reads tar archives of layers: ustar, pax, GNU's long names and sparse files, as a stream of
members.

By hand: Python's tarfile reads extended headers of any size into memory and calls itself once for
each header in front of a member, so a small archive could end the process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from quicksand.base.error_text import size_text
from quicksand.base.errors import ImageError

from quicksand_images.oci import sparse

BLOCK = 512
HEADER_MAX = 1024 * 1024
"""Bytes of an extended header or of a long name. Linux allows 64 KiB for all xattrs of a file that
can be listed, and a path of 4 KiB."""

HEADERS_MAX = 8
"""Extended headers in front of one member; real archives have three at most."""

PIECE = 1 << 18
ID_MAX = 2**32 - 2
"""The largest user or group id; the one above it means "none" (chown(2))."""

TIME_MAX = 2**31 - 1
"""The latest time that every file system and program can store."""

_XATTR = "SCHILY.xattr."
_LENGTH = re.compile(rb"([1-9][0-9]{0,6}) ")


class Kind(Enum):
    """The type of a member or a record."""

    FILE = "a file"
    LINK = "a hard link"
    SYMLINK = "a symbolic link"
    CHARACTER = "a character device"
    BLOCK = "a block device"
    DIRECTORY = "a directory"
    FIFO = "a FIFO"


_KINDS = {
    b"\0": Kind.FILE,
    b"0": Kind.FILE,
    b"7": Kind.FILE,
    b"S": Kind.FILE,
    b"1": Kind.LINK,
    b"2": Kind.SYMLINK,
    b"3": Kind.CHARACTER,
    b"4": Kind.BLOCK,
    b"5": Kind.DIRECTORY,
    b"6": Kind.FIFO,
}
_EXTENDED, _GLOBAL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"


class Input(Protocol):
    """A stream of bytes."""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member, as the archive describes it. Names are those of Python's file system calls: bytes
    that are not UTF-8 are surrogates in them."""

    name: str
    kind: Kind
    mode: int
    """The permissions, with those for set-user-id, set-group-id and the sticky bit."""
    uid: int
    gid: int
    mtime: int
    """Unix time, within the storable range."""
    size: int = 0
    ranges: sparse.Ranges | None = None
    """The ranges of a sparse file that the archive has; None for the whole file."""
    target: str = ""
    """The target of a link."""
    device: tuple[int, int] = (0, 0)
    xattrs: Mapping[str, bytes] = field(default_factory=dict)


class TarReader:
    """Reads the members of one archive. ``what`` names it in errors, all of which are
    ImageErrors."""

    def __init__(self, source: Input, what: str) -> None:
        self._source = source
        self._what = what
        self._left = 0
        """Bytes of the present member that were not read."""
        self._padding = 0

    def __iter__(self) -> Iterator[Member]:
        """Yield the members up to the end of the archive. Unread contents are skipped. Raises
        ImageError for an archive that is damaged, cut off, or of another kind."""
        while (found := self._next()) is not None:
            yield found

    def content(self) -> Iterator[bytes]:
        """Yield the content of the present member, in pieces. Raises ImageError if it is cut
        off."""
        while self._left:
            piece = self._source.read(min(self._left, PIECE))
            if not piece:
                raise self._refuse("it is cut off")
            self._left -= len(piece)
            yield piece
        self._read(self._padding)
        self._padding = 0

    def _next(self) -> Member | None:
        extra: dict[str, bytes] = {}
        for _ in range(HEADERS_MAX + 1):
            for _ in self.content():
                pass
            header = self._source.read(BLOCK)
            if not header or header == bytes(BLOCK):
                if extra:
                    raise self._refuse("it ends behind an extended header")
                return None
            self._check(header)
            flag = header[156:157]
            if flag not in (_EXTENDED, _GLOBAL, _LONG_NAME, _LONG_LINK):
                return self._member(header, flag, extra)
            data = self._extension(header)
            if flag == _EXTENDED:
                extra |= self._records(data)
            elif flag != _GLOBAL:  # which has nothing that matters for a layer
                name = "path" if flag == _LONG_NAME else "linkpath"
                extra.setdefault(name, data.split(b"\0", 1)[0])
        raise self._refuse(f"a member of it has more than {HEADERS_MAX} extended headers")

    def _check(self, header: bytes) -> None:
        if len(header) < BLOCK:
            raise self._refuse("it is cut off")
        plain = header[:148] + b" " * 8 + header[156:]
        if self._number(header[148:156]) != sum(plain):
            raise self._refuse("a header in it has a wrong checksum")

    def _extension(self, header: bytes) -> bytes:
        size = self._number(header[124:136])
        if size > HEADER_MAX:
            raise self._refuse(f"it has an extended header of {size_text(size)}")
        data = self._read(size)
        self._read(-size % BLOCK)
        return data

    def _records(self, data: bytes) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        ranges: list[bytes] = []
        at = 0
        while at < len(data):
            match = _LENGTH.match(data, at)
            end = at + int(match[1]) if match else 0
            if match is None or end > len(data) or data[end - 1 : end] != b"\n":
                raise self._refuse("it has an extended header that is damaged")
            key, equals, value = data[match.end() : end - 1].partition(b"=")
            if not equals:
                raise self._refuse("it has an extended header that is damaged")
            name = key.decode("utf-8", "surrogateescape")
            if name in sparse.REPEATED:
                ranges.append(value)
            found[name] = value
            at = end
        if ranges:
            found[sparse.MAP] = b",".join(ranges)
        return found

    def _member(self, header: bytes, flag: bytes, extra: Mapping[str, bytes]) -> Member:
        path = extra.get(f"{sparse.PREFIX}name") or extra.get("path", _full_name(header))
        name = _text(path)
        shown = f"{name[:200]!r}"
        kind = _KINDS.get(flag)
        if kind is None:
            raise self._refuse(f"{shown} is of the unknown type {flag!r}")
        if kind is Kind.FILE and name.endswith("/"):
            kind = Kind.DIRECTORY
        # Others have no content, whatever their size field: tools give a link that of its target.
        stored = self._whole(extra, "size", header[124:136]) if kind is Kind.FILE else 0
        self._left, self._padding = stored, -stored % BLOCK
        size, ranges = self._ranges(header, flag, extra, shown)
        ids = [
            self._whole(extra, "uid", header[108:116]),
            self._whole(extra, "gid", header[116:124]),
        ]
        if max(ids) > ID_MAX:
            raise self._refuse(f"{shown} belongs to {ids[0]}:{ids[1]}, which is no id")
        return Member(
            name=name,
            kind=kind,
            mode=self._number(header[100:108]) & 0o7777,
            uid=ids[0],
            gid=ids[1],
            mtime=self._time(extra, header[136:148]),
            size=size,
            ranges=ranges,
            target=_text(extra.get("linkpath", header[157:257].split(b"\0", 1)[0])),
            device=(self._number(header[329:337]), self._number(header[337:345])),
            xattrs={
                key.removeprefix(_XATTR): value
                for key, value in extra.items()
                if key.startswith(_XATTR)
            },
        )

    def _ranges(
        self, header: bytes, flag: bytes, extra: Mapping[str, bytes], shown: str
    ) -> tuple[int, sparse.Ranges | None]:
        """Return the size of the present member and, if it is sparse, the ranges in the archive."""
        try:
            if flag == b"S":
                size, ranges = sparse.read_old(header, self._read, self._number)
            elif any(key.startswith(sparse.PREFIX) for key in extra):
                size, ranges = sparse.read_pax(extra, self._take)
            else:
                return self._left, None
            sparse.require_ranges(ranges, size, self._left)
        except ValueError as error:
            raise self._refuse(f"{shown} is a sparse file, and {error}") from error
        return size, ranges

    def _take(self, size: int) -> bytes:
        """Read from the content of the present member. Raises ValueError beyond its end."""
        if size > self._left:
            raise ValueError("its map is cut off")
        self._left -= size
        return self._read(size)

    def _whole(self, extra: Mapping[str, bytes], key: str, plain: bytes) -> int:
        value = extra.get(key)
        if value is None:
            return self._number(plain)
        if not value.isdigit() or len(value) > 19:
            raise self._refuse(f"an extended header in it has no proper {key}")
        return int(value)

    def _time(self, extra: Mapping[str, bytes], plain: bytes) -> int:
        value = extra.get("mtime")
        if value is None:
            seconds = self._number(plain, signed=True)
        else:
            whole = value.partition(b".")[0]
            if not whole.removeprefix(b"-").isdigit() or len(whole) > 20:
                raise self._refuse("an extended header in it has no proper mtime")
            seconds = int(whole)
        return min(max(seconds, 0), TIME_MAX)

    def _number(self, data: bytes, *, signed: bool = False) -> int:
        """Decode octal digits, or GNU's binary form, whose first bit is set."""
        if data[0] & 0x80:
            number = int.from_bytes(bytes([data[0] & 0x7F]) + data[1:], "big")
            if data[0] & 0x40:
                number -= 1 << (8 * len(data) - 1)
        else:
            digits = data.split(b"\0", 1)[0].strip(b" ")
            if not all(0x30 <= digit <= 0x37 for digit in digits):
                raise self._refuse("a header in it has no proper number")
            number = int(digits or b"0", 8)
        if number < 0 and not signed:
            raise self._refuse("a header in it has a negative number")
        return number

    def _read(self, size: int) -> bytes:
        data = self._source.read(size) if size else b""
        if len(data) < size:
            raise self._refuse("it is cut off")
        return data

    def _refuse(self, why: str) -> ImageError:
        return ImageError(f"{self._what} is refused: {why}")


def _full_name(header: bytes) -> bytes:
    name, prefix = (part.split(b"\0", 1)[0] for part in (header[:100], header[345:500]))
    # GNU's archives have other fields where POSIX has the beginning of a long name.
    if header[257:263] == b"ustar\0" and prefix:
        return prefix + b"/" + name
    return name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")
