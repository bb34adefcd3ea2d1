"""One file in two places, without its bytes being there twice where the file system can do that."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from quicksand.host.files import data_extents, map_os_errors

FICLONE = 0x40049409
"""ioctl_ficlone(2)."""

BLOCK = 4096
STEP = 1 << 26
"""Bytes between two reports of progress."""
COPY_MAX = 1 << 30
PLAIN_MAX = 1 << 20
NOT_BY_THE_KERNEL = {
    errno.EXDEV,
    errno.EINVAL,
    errno.ENOSYS,
    errno.EOPNOTSUPP,
    errno.EPERM,
}
"""copy_file_range(2): some file systems, or two of them, cannot do it."""


def share_file(source: Path, target: Path) -> None:
    """Have the file ``source``, which is never written to again, as ``target`` too: by a hard link,
    on another file system by a copy. No error if it is there.

    Raises DiskSpaceError, PathError.
    """
    with map_os_errors(target):
        if not link_file(source, target):
            copy_sparse(source, target)


def link_file(source: Path, target: Path) -> bool:
    """Make ``target`` a hard link, or find it there; False where there can be none. Raises
    OSError."""
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
    """Copy a file; holes stay holes. ``target`` appears only when it is whole. Raises OSError."""
    with source.open("rb") as old:
        copy_open_file(old.fileno(), target)


def copy_open_file(
    source: int, target: Path, progress: Callable[[int], None] | None = None
) -> None:
    """As `copy_sparse`, of a file that is open and may have lost its name. ``progress`` is told
    how many bytes have been copied, and may raise."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with temporary.open("xb") as new:
            if not share_blocks(new.fileno(), source):
                _copy_extents(new.fileno(), source, progress)
            os.fsync(new.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def share_blocks(target: int, source: int) -> bool:
    """Make an empty file a copy of another one that takes no space; False where that cannot be."""
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:
        return False
    return True


def can_share_blocks(directory: Path) -> bool:
    """Whether files of this directory's file system can share their blocks.

    Tries it with two small files. Raises DiskSpaceError, PathError.
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
    """Copy bytes to the same place in another file, within the kernel where it can.

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
    """Write all of ``data`` there. Raises OSError."""
    while data:
        moved = os.pwrite(descriptor, data, offset)
        data, offset = data[moved:], offset + moved


def _copy_plainly(target: int, source: int, start: int, end: int) -> int:
    data = os.pread(source, min(end - start, PLAIN_MAX), start)
    return os.pwrite(target, data, start) if data else 0
