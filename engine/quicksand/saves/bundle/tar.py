"""Writes tar headers, and reads tars that contain plain files only (POSIX pax interchange format).

Blocks have 512 bytes and sizes are octal; from 8 GiB on a pax record has the size. Bundles come
from anywhere, so the reader refuses links, directories, sparse files and long names, and bounds
everything that it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

BLOCK = 512
OCTAL_MAX = 8**11
"""Bytes: the first size that does not fit into the eleven octal digits of a header, 8 GiB."""

PAX_MAX = 64 * 1024
"""Bytes of an extended header; ours have 30."""

END_MAX = 1024 * 1024
"""Bytes of zeros after the last member: some programs pad to large blocks."""

PIECE = 1 << 20
"""Bytes that are read in one step."""

_MAGICS = (b"ustar\x0000", b"ustar  \x00")
_KINDS = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"5": "a directory",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"K": "a long name",
    b"L": "a long name",
    b"g": "a global header",
}
_PAX_KNOWN = {"size", "mtime", "atime", "ctime", "uid", "gid", "uname", "gname"}
"""Keywords of extended headers that change neither the name nor the kind of a member."""


class Input(Protocol):
    """A stream of bytes."""

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end."""


@dataclass(frozen=True, slots=True)
class Header:
    """A member that is a plain file."""

    name: str
    size: int


def encode_header(name: str, size: int, mtime: float) -> bytes:
    """Encode the header of a member of ``size`` bytes; ``mtime`` is a Unix time."""
    time = min(max(0, int(mtime)), OCTAL_MAX - 1)
    if size < OCTAL_MAX:
        return _encode(name, size, time, b"0")
    record = _pax_record("size", str(size))
    extended = _encode(f"PaxHeaders/{name}"[:99], len(record), time, b"x")
    return extended + record + padding(len(record)) + _encode(name, 0, time, b"0")


def padding(size: int) -> bytes:
    """Return the zeros that fill the last block of ``size`` bytes of content."""
    return bytes(-size % BLOCK)


END = bytes(2 * BLOCK)


def _encode(name: str, size: int, time: int, kind: bytes) -> bytes:
    path = name.encode("ascii")
    assert len(path) <= 100, "names are ours"
    head = b"".join(
        (
            path.ljust(100, b"\0"),
            b"0000600\0",
            b"0000000\0" * 2,  # user, group
            b"%011o\0" % size,
            b"%011o\0" % time,
            b" " * 8,
            kind,
            bytes(100),
            b"ustar\x0000",
        )
    ).ljust(BLOCK, b"\0")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]


def _pax_record(key: str, value: str) -> bytes:
    """Encode ``LENGTH KEY=VALUE``, in which the length counts its own digits."""
    length = rest = len(key) + len(value) + 3
    while length != rest + len(str(length)):
        length = rest + len(str(length))
    return f"{length} {key}={value}\n".encode()


class TarReader:
    """Reads a tar member by member. All methods raise ValueError saying what is wrong."""

    def __init__(self, source: Input) -> None:
        self._source = source
        self._left = 0
        """Bytes of the present member that were not read yet."""
        self._fill = 0
        self._begun = False

    def next(self) -> Header | None:
        """Return the next member, or None at the end. The one before must have been read."""
        assert self._left == 0, "read it first"
        self._skip_padding()
        size: int | None = None
        block = self._block() if self._begun else self._first_block()
        if extended := block[156:157] == b"x":
            size = self._read_pax(_parse(block)[1])
            block = self._block()
        if not any(block):
            if extended:
                raise ValueError("an extended header stands before nothing")
            self._read_end()
            return None
        name, own_size = _parse(block)
        kind = block[156:157]
        if kind not in (b"0", b"\0"):
            what = _KINDS.get(kind, f"of the unknown type {kind!r}")
            raise ValueError(f"{name!r} is {what}: only files are accepted")
        if any(block[157:257]):
            raise ValueError(f"{name!r} is a file that names a link's target")
        self._left = own_size if size is None else size
        self._fill = -self._left % BLOCK
        return Header(name, self._left)

    def content(self) -> Iterator[bytes]:
        """Yield the content of the present member in pieces."""
        while self._left:
            data = self._source.read(min(PIECE, self._left))
            if not data:
                raise ValueError("it is cut off")
            self._left -= len(data)
            yield data

    def small_content(self, limit: int, what: str) -> bytes:
        """Read the present member, which errors call ``what``, if it has at most ``limit``
        bytes."""
        if self._left > limit:
            raise ValueError(f"{what} has {self._left} bytes, more than {limit}")
        return b"".join(self.content())

    def _skip_padding(self) -> None:
        fill, self._fill = self._fill, 0
        if any(self._exactly(fill)):
            raise ValueError("there is something between two of its files")

    def _read_pax(self, length: int) -> int | None:
        """Read an extended header; return the size in it, or None."""
        self._left, self._fill = length, -length % BLOCK
        data = self.small_content(PAX_MAX, "an extended header")
        self._skip_padding()
        size = None
        while data:
            digits, _, _ = data.partition(b" ")
            if not digits.isdigit() or not len(digits) + 3 <= (end := int(digits)) <= len(data):
                raise ValueError("an extended header is malformed")
            record, data = data[len(digits) + 1 : end], data[end:]
            key, equals, value = record.partition(b"=")
            name = key.decode("utf-8", "replace")
            if not equals or not value.endswith(b"\n") or name not in _PAX_KNOWN:
                raise ValueError(f"an extended header says {name[:40]!r}, which is not supported")
            if name == "size":
                if not value[:-1].isdigit() or len(value) > 20:
                    raise ValueError("an extended header has no valid size")
                size = int(value[:-1])
        return size

    def _read_end(self) -> None:
        if any(self._block()):
            raise ValueError("its end is followed by something else")
        total = 0
        while data := self._source.read(BLOCK * 20):
            total += len(data)
            if total > END_MAX or data.count(0) != len(data):
                raise ValueError("its end is followed by something else")

    def _first_block(self) -> bytes:
        self._begun = True
        block = self._source.read(BLOCK)
        if not block:
            raise ValueError("it is empty, or cut off")
        if len(block) < BLOCK:
            raise ValueError(f"it is not a bundle, or it is cut off: it holds {len(block)} bytes")
        return block

    def _block(self) -> bytes:
        return self._exactly(BLOCK)

    def _exactly(self, size: int) -> bytes:
        data = self._source.read(size) if size else b""
        if len(data) != size:
            raise ValueError("it is cut off")
        return data


def _parse(block: bytes) -> tuple[str, int]:
    """Return the name and the size in a header."""
    if block[257:265] not in _MAGICS:
        raise ValueError("it is not a tar")
    stated = _octal(block[148:156], "checksum")
    if stated != sum(block) - sum(block[148:156]) + 8 * ord(" "):
        raise ValueError("the checksum of a tar header is wrong")
    name = block[:100].split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    if any(block[345:500]):
        raise ValueError(f"the name of {name!r} is too long")
    return name, _number(block[124:136])


def _number(field: bytes) -> int:
    if field[0] == 0x80:  # binary, as GNU tar has it
        return int.from_bytes(field[1:])
    return _octal(field, "size")


def _octal(field: bytes, what: str) -> int:
    digits = field.split(b"\0", 1)[0].strip(b" ")
    if not digits or digits.strip(b"01234567"):
        raise ValueError(f"a tar header has no valid {what}")
    return int(digits, 8)
