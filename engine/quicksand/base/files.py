"""Small, safe file operations: atomic JSON files, locks, the ends of logs."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from quicksand.base.errors import ConfigError, DiskSpaceError, PathError
from quicksand.base.regular import create, open_file, open_regular, read_at_most
from quicksand.base.removal import NotOursError

JSON_MAX = 4 * 1024 * 1024
"""Bytes. Our own records are far smaller."""

FULL = {errno.ENOSPC, errno.EDQUOT}
"""The errors that mean that no space is left."""


def anything(value: Any) -> Any:
    """The reader for files whose readers accept any JSON."""
    return value


Read = Callable[[Any], object]
"""Parses the JSON of a file; raises ValueError if it refuses the contents."""


def write_json(path: Path, value: Any, *, read: Read = anything, durable: bool = True) -> None:
    """Replace a JSON file, so that a crash at any point leaves the old file or the new one.

    ``read`` is the file's reader: a value that it refuses is not written. ``durable=False`` omits
    fsync, for directories that a reboot empties. Raises ConfigError for a value that could not be
    read again, DiskSpaceError, PathError; the old file is then still there.
    """
    pending = PendingJson(path, value, read=read, durable=durable)
    try:
        pending.put()
    finally:
        pending.drop()


def write_word(path: Path, text: str) -> None:
    """Replace a small ASCII file, so that readers see the old text or the new one. It is not
    synced. Raises OSError and then leaves the old one."""
    temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with create(temporary) as file:
            file.write(text.encode("ascii"))
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


class PendingJson:
    """A JSON value written beside its final path, so that `put` needs no more space.

    Making one raises as `write_json` and then leaves nothing.
    """

    def __init__(
        self, path: Path, value: Any, *, read: Read = anything, durable: bool = True
    ) -> None:
        text = _encode(path, value, read)
        self._path = path
        self._durable = durable
        self._temporary = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            with map_os_errors(path):
                self._write(text)
        except BaseException:
            self.drop()
            raise

    def _write(self, text: bytes) -> None:
        with create(self._temporary) as file:
            file.write(text)
            if self._durable:
                file.flush()
                os.fsync(file.fileno())

    def put(self) -> None:
        """Move it to its path. Raises DiskSpaceError or PathError and then leaves the old file."""
        with map_os_errors(self._path):
            self._temporary.replace(self._path)
            if self._durable:
                sync_dir(self._path.parent)

    def drop(self) -> None:
        """Remove it unless `put` has moved it. Idempotent."""
        # If it could not be written, removing it may fail too; the first error counts.
        with contextlib.suppress(OSError):
            self._temporary.unlink()


def _encode(path: Path, value: Any, read: Read) -> bytes:
    """Return the text of a JSON file, after reading it back. Raises ConfigError."""
    try:
        text = json.dumps(value, indent=1, allow_nan=False).encode("ascii") + b"\n"
    except (TypeError, ValueError, RecursionError):
        raise ConfigError(f"{path.name} is not written: JSON has no such values") from None
    if len(text) > JSON_MAX:
        raise ConfigError(
            f"{path.name} is not written: it would have {len(text)} bytes, and {JSON_MAX} is the "
            "most",
            hint="shorten the texts in it, such as notes",
        )
    try:
        read(json.loads(text))
    except ValueError as error:
        raise ConfigError(
            f"{path.name} is not written, for nobody could read it: {error}"
        ) from None
    return text


def read_json(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON object of at most 4 MiB. Raises OSError, ValueError for anything else."""
    text = read_at_most(path, JSON_MAX + 1)
    if len(text) > JSON_MAX:
        raise ValueError(f"{path} is larger than {JSON_MAX} bytes")
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError(f"{path} is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is not a JSON object")
    return value


def sync_dir(path: Path) -> None:
    """fsync a directory, which makes renames in it durable. Raises DiskSpaceError, PathError."""
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def map_os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into a DiskSpaceError or PathError that names ``path``."""
    try:
        yield
    except NotOursError as error:
        raise PathError(
            f"{error.filename} was not removed: {error.why}",
            hint="look at what is in it; if nobody needs it, remove it yourself",
        ) from error
    except OSError as error:
        if error.errno in FULL:
            raise DiskSpaceError(f"no space left for {path}") from error
        raise PathError(f"cannot write {path}: {error.strerror or error}") from error


def data_extents(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of an open file of ``size`` bytes that hold data: (start, end) in bytes,
    ascending. The rest are holes. A file system without holes reports one range. Raises OSError."""
    end = 0
    while end < size:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = min(size, os.lseek(descriptor, start, os.SEEK_HOLE))
        except OSError as error:
            if error.errno == errno.ENXIO:  # only a hole up to the end
                return
            if error.errno != errno.EINVAL:
                raise
            start, end = end, size
        yield start, end


def try_lock(path: Path, *, shared: bool = False, create: bool = True) -> int | None:
    """Take the flock on ``path``; return the open descriptor, or None if it is held or, without
    ``create``, missing. Closing the last copy of the descriptor frees the lock. Raises OSError.
    """
    try:
        # No link is followed: it could put the lock in another place.
        descriptor = open_regular(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0))
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def try_named_lock(path: Path) -> int | None:
    """As `try_lock`, for a lock whose file vanishes when it is given back (`give_back`), so that
    files do not pile up. Raises OSError."""
    while True:
        descriptor = try_lock(path)
        if descriptor is None:
            return None
        # The last holder may have removed the file between our opening and our locking it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        os.close(descriptor)


def give_back(path: Path, descriptor: int) -> None:
    """Give a lock of `try_named_lock` back."""
    try:
        with contextlib.suppress(OSError):  # a file that stays harms nobody
            path.unlink()
    finally:
        os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Whether any process holds the exclusive flock on ``path``. Raises OSError."""
    try:
        descriptor = try_lock(path, shared=True, create=False)
    except NotADirectoryError:
        return False
    if descriptor is None:
        return path.exists()  # or else it is missing
    os.close(descriptor)
    return False


def lock_within(
    path: Path, seconds: float, *, take: Callable[[Path], int | None] = try_lock
) -> int | None:
    """As ``take`` (`try_lock` or `try_named_lock`), but retry for ``seconds``, because `is_locked`
    in another process holds the lock for an instant. Blocks the thread. Raises OSError."""
    deadline = time.monotonic() + seconds
    while True:
        descriptor = take(path)
        if descriptor is not None or time.monotonic() >= deadline:
            return descriptor
        time.sleep(0.002)


def tail(path: Path, *, limit: int = 4096) -> str:
    """Return the last ``limit`` bytes of a log and its rotated part; "" if there is none."""
    data = b""
    for piece in (path, path.with_name(path.name + ".1")):
        with contextlib.suppress(FileNotFoundError), open_file(piece) as file:
            size = file.seek(0, os.SEEK_END)
            wanted = min(size, limit - len(data))
            file.seek(size - wanted)
            data = file.read(wanted) + data
        if len(data) >= limit:
            break
    return data.decode("utf-8", "replace")
