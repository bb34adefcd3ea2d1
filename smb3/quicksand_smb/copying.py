"""Copies bytes between two open files."""

from __future__ import annotations

import errno
import os

_BUFFER = 1 << 20
"""The bytes that one read and one write move at once."""


def copy_in_kernel(source: int, target: int, offset: int, to: int, count: int) -> int:
    """Copy with copy_file_range, and return how many bytes it copied before it failed."""
    if not hasattr(os, "copy_file_range"):
        return 0
    done = 0
    try:
        while done < count:
            moved = os.copy_file_range(source, target, count - done, offset + done, to + done)
            if not moved:
                break
            done += moved
    except OSError as error:
        # EINVAL: ranges of one file overlap.
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
            raise
    return done


def copy(source: int, target: int, offset: int, to: int, count: int) -> int:
    """Copy with a buffer, and return how many bytes there were. Overlapping ranges of one file are
    copied backwards if necessary."""
    one_file = count and os.path.sameopenfile(source, target)
    if one_file and offset < to < offset + count:
        left = count
        while left:
            part = min(left, _BUFFER)
            left -= part
            _write_all(target, os.pread(source, part, offset + left), to + left)
        return count
    done = 0
    while done < count:
        data = os.pread(source, min(count - done, _BUFFER), offset + done)
        if not data:
            break
        _write_all(target, data, to + done)
        done += len(data)
    return done


def _write_all(target: int, data: bytes, offset: int) -> None:
    left = memoryview(data)
    while left:
        done = os.pwrite(target, left, offset)
        left = left[done:]
        offset += done
