"""Opening files by their names.

A FIFO, a socket or a device may be where a file of ours is expected, and open(2) would wait for a
FIFO's writer for ever. So everything that is opened by name is first proven to be a regular file,
here. The keeper runs this module without the rest of the engine.
"""

from __future__ import annotations

import errno
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path
    from typing import BinaryIO

KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
PIECE = 32 * 1024
"""Bytes that are read at a time; records are smaller."""
NO_LINK = "it is a symbolic link, and no file"


class NotAFileError(OSError):
    """Raised when the thing with a file's name is not a regular file. Its errno is EISDIR for a
    directory, ELOOP for a link, otherwise EINVAL."""


def open_regular(
    path: str | os.PathLike[str],
    flags: int = os.O_RDONLY,
    mode: int = 0o600,
    *,
    at: int | None = None,
) -> int:
    """Open a regular file and return its descriptor, which is not inherited. With O_CREAT in
    ``flags`` a new one gets ``mode``. A link is followed unless ``flags`` have O_NOFOLLOW. ``at``
    is the descriptor of the directory to which ``path`` is relative. Raises NotAFileError, other
    OSErrors."""
    try:
        # O_NONBLOCK: opening a FIFO does not wait. It means nothing for regular files.
        descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=at)
    except OSError as error:
        # A FIFO without a reader, and a socket; a directory opened for writing.
        if error.errno == errno.ELOOP and flags & os.O_NOFOLLOW:
            raise NotAFileError(errno.ELOOP, NO_LINK, os.fspath(path)) from error
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise _not_a_file(path, os.stat(path, dir_fd=at).st_mode) from error
        raise
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            raise _not_a_file(path, kind)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_file(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> BufferedReader:
    """Open a regular file for reading. Raises as `open_regular`."""
    descriptor = open_regular(path, flags)
    try:
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def create(path: str | os.PathLike[str], *, buffering: int = -1) -> BinaryIO:
    """Make a new file for writing, this user's only, whatever the umask says. Raises OSError, also
    if the name is taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb", buffering)


def append_to(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for appending; a new one is this user's only. Raises as
    `open_regular`."""
    return os.fdopen(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), "ab")


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a regular file. Raises as `open_regular`."""
    with open_file(path) as file:
        return file.read()


def read_at_most(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the first ``limit`` bytes of a regular file, without the layers of a file object: a
    thousand records are read so. Raises as `open_regular`."""
    descriptor = open_regular(path)
    try:
        pieces, left = [], limit
        while left > 0 and (piece := os.read(descriptor, min(left, PIECE))):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def read_word(path: Path) -> str:
    """Return the text of a small ASCII file. Raises as `open_regular`, and ValueError."""
    return read_file(path).decode("ascii")


def _not_a_file(path: str | os.PathLike[str], mode: int) -> NotAFileError:
    kind = KINDS.get(stat.S_IFMT(mode), "something else")
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
    return NotAFileError(number, f"it is {kind}, and no file", os.fspath(path))
