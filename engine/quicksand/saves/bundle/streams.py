"""Bundles as streams of bytes: read from a file or a pipe, compressed or not, and written so that
the file appears only when it is complete."""

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
