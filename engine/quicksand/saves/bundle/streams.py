"""Bundles as streams of bytes: read from a file or a pipe, compressed or not, and written so that
the file appears only when it is complete; and the tar in them (POSIX pax interchange format).

Blocks have 512 bytes and sizes are octal; from 8 GiB on a pax record has the size. Bundles come
from anywhere, so the reader refuses links, directories, sparse files and long names, and bounds
everything that it reads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from quicksand_disks import zstd

from quicksand.base.error_text import size_text
from quicksand.base.errors import PathError
from quicksand.base.files import map_os_errors, sync_dir

PIECE = 1 << 20
"""Bytes that are read in one step."""

STOP_POLL_S = 0.2

SILENCE_S = 600.0
"""Seconds within which a pipe must deliver SILENCE_BYTES: its sender may have to compress first, or
to wait for a password, but not for ever."""

SILENCE_BYTES = 64 * 1024

EMPTY_MAX = 4 * 1024 * 1024
"""The most bytes by which compressed data may exceed the decompressed data."""

RATIO_MAX, RATIO_FREE = 100, 256 * 1024 * 1024
"""The bound of a bundle's unpacked size where nothing else bounds it: so many times its own bytes,
plus so many bytes."""

GZIP_MAGIC = b"\x1f\x8b"

_NO_UNNAMED = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
"""Errors of open(2) where O_TMPFILE is not supported."""

Write = Callable[[bytes], None]


class Readable(Protocol):
    """The part of a file that `BundleSource` uses."""

    def read(self, size: int, /) -> bytes | None: ...


class _Pipe:
    """A file that may keep its reader waiting. It calls ``stop`` meanwhile, and gives up on a
    sender that is too slow."""

    def __init__(self, descriptor: int, stop: Callable[[], None]) -> None:
        self._descriptor = descriptor
        self._stop = stop
        self._since = time.monotonic()
        self._brought = 0
        """Bytes that have arrived since that moment."""

    def read(self, size: int, /) -> bytes:
        """Read. Raises PathError if too little arrives, OSError, and the errors of ``stop``."""
        while not select.select([self._descriptor], [], [], STOP_POLL_S)[0]:
            self._stop()
            self._require_speed()
        data = os.read(self._descriptor, size)
        self._brought += len(data)
        self._require_speed()
        return data

    def _require_speed(self) -> None:
        now = time.monotonic()
        if self._brought >= SILENCE_BYTES:
            self._since, self._brought = now, 0
        elif now - self._since > SILENCE_S:
            raise PathError(
                f"the bundle does not come: {self._brought} bytes arrived in {SILENCE_S:g} seconds",
                hint="check the program that sends it, or write the bundle to a file first",
            )


class BundleSource:
    """Reads a bundle and decompresses it if its first bytes say that it is compressed."""

    def __init__(self, file: Readable) -> None:
        self.taken = 0
        """Bytes read from the file."""
        self._given = 0
        """Bytes that they decompressed to."""
        self._file = file
        begin = self._some()
        raw = self._pieces(begin)
        if begin.startswith(zstd.MAGIC):
            self._unpacked = zstd.unpack(raw)
        elif begin.startswith(GZIP_MAGIC):
            self._unpacked = _gunzip(raw)
        else:
            self._unpacked = raw
        self.is_packed = self._unpacked is not raw
        self._rest = memoryview(b"")

    def check_ratio(self) -> None:
        """Raise ValueError if what was read so far unpacks to more than a real bundle does."""
        if self._given > self.taken * RATIO_MAX + RATIO_FREE:
            raise ValueError(f"{size_text(self.taken)} of it unpack to {size_text(self._given)}")

    def close(self) -> None:
        close = getattr(self._unpacked, "close", None)
        if close is not None:
            close()

    def read(self, size: int) -> bytes:
        """Read ``size`` bytes, fewer only at the end. Raises ValueError for damage, PathError."""
        parts: list[bytes] = []
        while size:
            if not self._rest:
                piece = next(self._unpacked, b"")
                if not piece:
                    break
                self._given += len(piece)
                self._rest = memoryview(piece)
            parts.append(bytes(self._rest[:size]))
            self._rest = self._rest[size:]
            size -= len(parts[-1])
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pieces(self, begin: bytes) -> Iterator[bytes]:
        while begin:
            yield begin
            # Compressed data can be endless and yet hold nothing.
            if self.taken > self._given + self._given // 64 + EMPTY_MAX:
                raise ValueError("its compressed data hold next to nothing")
            begin = self._some()

    def _some(self) -> bytes:
        try:
            data = self._file.read(PIECE) or b""
        except OSError as error:
            raise PathError(f"the bundle cannot be read: {error.strerror}") from error
        self.taken += len(data)
        return data


def _gunzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    for piece in pieces:
        if unpacker.eof:
            raise ValueError("something follows its compressed data")
        data = piece
        while data and not unpacker.eof:
            try:
                unpacked = unpacker.decompress(data, PIECE)
            except zlib.error as error:
                raise ValueError("its compressed data are damaged") from error
            data = unpacker.unconsumed_tail
            if unpacked:
                yield unpacked
        if unpacker.unused_data:
            raise ValueError("something follows its compressed data")
    if last := unpacker.flush():  # the rest of a match
        yield last
    if not unpacker.eof:
        raise ValueError("it is cut off")


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting for a writer, in case it is a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


@contextlib.contextmanager
def open_source(
    path: Path | BinaryIO, stop: Callable[[], None] = lambda: None
) -> Iterator[tuple[BundleSource, int | None]]:
    """Open a bundle; yield its `BundleSource` and the bytes of its file, None for a pipe. ``stop``
    is called while waiting for a pipe, and may raise. Raises PathError."""
    with ExitStack() as stack:
        file: Readable
        if isinstance(path, Path):
            try:
                file = stack.enter_context(open(path, "rb", buffering=0, opener=_open_at_once))
            except OSError as error:
                raise PathError(f"cannot read {path}: {error.strerror}") from error
        else:
            file = path
        size = None
        # A file object in memory has no descriptor.
        with contextlib.suppress(OSError, AttributeError):
            number = file.fileno()
            found = os.fstat(number)
            if stat.S_ISREG(found.st_mode):
                size = found.st_size
            else:
                file = _Pipe(number, stop)
        source = BundleSource(file)
        stack.callback(source.close)
        yield source, size


@contextlib.contextmanager
def open_target(path: Path | BinaryIO, *, compress: bool) -> Iterator[Write]:
    """Yield a function that writes a new bundle. When the block ends, the complete bundle replaces
    ``path``, synced and readable only by its owner.

    Raises DiskSpaceError or PathError; ``path`` is then unchanged.
    """
    with ExitStack() as stack:
        if isinstance(path, Path):
            write: Write = stack.enter_context(_new_file(path))
        else:
            write = _stream_writer(path)
        if compress:
            packer = zstd.Packer(write)
            yield packer.feed
            packer.finish()
        else:
            yield write
        if not isinstance(path, Path):
            path.flush()


def _stream_writer(file: BinaryIO) -> Write:
    def write(data: bytes) -> None:
        file.write(data)

    return write


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[Write]:
    path = path.absolute()
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise PathError(
                f"{path} exists and is not a regular file", hint="name a new file, or - for stdout"
            )
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(4)}")
    with map_os_errors(path):
        descriptor, unnamed = _open_new(temporary)
    try:
        yield lambda data: _write_all(path, descriptor, data)
        with map_os_errors(path):
            os.fsync(descriptor)
            if unnamed:
                _give_name(descriptor, temporary)
            temporary.replace(path)
        sync_dir(path.parent)
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            temporary.unlink()


def _open_new(temporary: Path) -> tuple[int, bool]:
    """Open a file without a name, which vanishes with this process, or else ``temporary``."""
    unnamed = getattr(os, "O_TMPFILE", None)
    if unnamed is not None:
        try:
            flags = unnamed | os.O_WRONLY | os.O_CLOEXEC
            return os.open(temporary.parent, flags, 0o600), True
        except OSError as error:
            if error.errno not in _NO_UNNAMED:
                raise
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.open(temporary, flags, 0o600), False


def _give_name(descriptor: int, name: Path) -> None:
    directory = os.open(name.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        # With a directory's descriptor Python calls linkat(2), which follows the link in /proc.
        source = f"/proc/self/fd/{descriptor}"
        os.link(source, name.name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def _write_all(path: Path, descriptor: int, data: bytes) -> None:
    with map_os_errors(path):
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]


BLOCK = 512
OCTAL_MAX = 8**11
"""Bytes: the first size that does not fit into the eleven octal digits of a header, 8 GiB."""

PAX_MAX = 64 * 1024
"""Bytes of an extended header; ours have 30."""

END_MAX = 1024 * 1024
"""Bytes of zeros after the last member: some programs pad to large blocks."""

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
