"""Copies files by hard links, shared blocks (reflinks) or sparse copies, the cheapest that
works."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from quicksand.base.files import data_extents, map_os_errors
from quicksand.base.regular import create, open_file

FICLONE = 0x40049409
"""ioctl_ficlone(2)."""

BLOCK = 4096
STEP = 1 << 26
"""Bytes between two reports of progress."""

COPY_MAX = 1 << 30
PLAIN_MAX = 1 << 20
"""The most bytes that one call copies, within the kernel or through this process."""

NOT_BY_THE_KERNEL = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
}
"""Errors of copy_file_range(2) where the file systems do not support it."""


def share_file(source: Path, target: Path) -> None:
    """Make ``target`` a hard link to ``source``, which must never change again, or a copy on
    another file system. An existing target may stay. Raises DiskSpaceError, PathError.
    """
    with map_os_errors(target):
        if not link_file(source, target):
            copy_sparse(source, target)


def link_file(source: Path, target: Path) -> bool:
    """Make ``target`` a hard link unless it exists; return False where links are not possible.
    Raises OSError."""
    try:
        os.link(source, target)
    except FileExistsError:
        return True
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        return False
    return True


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file and keep its holes. ``target`` appears only when it is whole. Raises OSError."""
    with open_file(source) as old:
        copy_open_file(old.fileno(), target)


def copy_open_file(
    source: int, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """Copy an open file, even one without a name, as `copy_sparse` does. ``progress`` gets the
    number of bytes copied and may raise. Raises OSError."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with create(temporary) as new:
            if not share_blocks(new.fileno(), source):
                _copy_extents(new.fileno(), source, progress)
            os.fsync(new.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def share_blocks(target: int, source: int) -> bool:
    """Make an empty file share all blocks of ``source``; return False where that is not
    possible."""
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:
        return False
    return True


def can_share_blocks(directory: Path) -> bool:
    """Whether files in this directory can share blocks, found by trying it with two small files.

    Raises DiskSpaceError, PathError.
    """
    if sys.platform != "linux":
        return False
    with (
        map_os_errors(directory),
        tempfile.TemporaryFile(dir=directory) as old,
        tempfile.TemporaryFile(dir=directory) as new,
    ):
        os.write(old.fileno(), bytes(BLOCK))
        return share_blocks(new.fileno(), old.fileno())


def _copy_extents(target: int, source: int, progress: Callable[[int], None] | None = None) -> None:
    size = os.fstat(source).st_size
    os.truncate(target, size)
    done = 0
    for first, last in data_extents(source, size):
        for start in range(first, last, STEP):
            end = min(start + STEP, last)
            copy_range(target, source, start, end)
            done += end - start
            if progress is not None:
                progress(done)


def copy_range(target: int, source: int, start: int, end: int) -> None:
    """Copy a range of bytes to the same offsets, within the kernel where possible.

    Raises OSError, also if ``source`` ends before ``end``.
    """
    while start < end:
        try:
            moved = os.copy_file_range(source, target, min(end - start, COPY_MAX), start, start)
        except OSError as error:
            if error.errno not in NOT_BY_THE_KERNEL:
                raise
            moved = _copy_plainly(target, source, start, end)
        if not moved:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start += moved


def write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """Write all of ``data`` at ``offset``. Raises OSError."""
    while data:
        moved = os.pwrite(descriptor, data, offset)
        data, offset = data[moved:], offset + moved


def _copy_plainly(target: int, source: int, start: int, end: int) -> int:
    data = os.pread(source, min(end - start, PLAIN_MAX), start)
    return os.pwrite(target, data, start) if data else 0
