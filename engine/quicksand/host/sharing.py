"""One file in two places, without its bytes being there twice where the file system can do that."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from pathlib import Path

from quicksand.host.files import data_extents, map_os_errors

FICLONE = 0x40049409
"""ioctl_ficlone(2)."""

COPY_MAX = 1 << 30


def share_file(source: Path, target: Path) -> None:
    """Have the file ``source``, which is never written to again, as ``target`` too: by a hard link,
    on another file system by a copy. No error if it is there.

    Raises DiskSpaceError, PathError.
    """
    with map_os_errors(target):
        try:
            os.link(source, target)
        except FileExistsError:
            return
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP):
                raise
            copy_sparse(source, target)


def copy_sparse(source: Path, target: Path) -> None:
    """Copy a file; holes stay holes. ``target`` appears only when it is whole. Raises OSError."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        with source.open("rb") as old, temporary.open("xb") as new:
            try:
                fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
            except OSError:
                _copy_extents(old.fileno(), new.fileno())
            os.fsync(new.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _copy_extents(old: int, new: int) -> None:
    size = os.fstat(old).st_size
    os.truncate(new, size)
    for start, end in data_extents(old, size):
        _copy_range(old, new, start, end)


def _copy_range(old: int, new: int, start: int, end: int) -> None:
    os.lseek(new, start, os.SEEK_SET)
    while start < end:
        done = os.sendfile(new, old, start, min(end - start, COPY_MAX))
        if done == 0:
            raise OSError(errno.EIO, "the file became shorter while it was copied")
        start += done
