"""Linux system calls that the os module lacks, called with ctypes.

Every function raises OSError, as os functions do. ENOSYS means that the kernel or the C library
does not know the call. Callers then do without it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys
from _thread import _local

# On Windows the functions that need this module are never reached: they refuse before, or need a
# descriptor that only Linux gives.
# pyright: reportPossiblyUnboundVariable=false
if sys.platform != "win32":
    import fcntl

from quicksand_smb.store_types import STATX_SIZE, Stat, stat_from_os, stat_from_statx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

O_PATH: int = getattr(os, "O_PATH", 0)
O_NOFOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
O_DIRECTORY: int = getattr(os, "O_DIRECTORY", 0)
# Flags of every open: no waiting for the other end of a FIFO, and no controlling terminal.
O_ALWAYS: int = (
    O_NOFOLLOW
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)
O_LOOK: int = (O_PATH or getattr(os, "O_NONBLOCK", 0)) | O_NOFOLLOW | getattr(os, "O_CLOEXEC", 0)
"""The flags for a descriptor that only names a file (open(2), O_PATH). On other systems it can
read, too."""

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_AT_NO_AUTOMOUNT = 0x800
_AT_EMPTY_PATH = 0x1000
_STATX_WANTED = 0xFFF  # STATX_BASIC_STATS and STATX_BTIME
_RENAME_NOREPLACE = 1
_NR_OPENAT2 = 437  # on every architecture
_RESOLVE = 0x08 | 0x04 | 0x02  # BENEATH, NO_SYMLINKS, NO_MAGICLINKS (linux/openat2.h)
_OPEN_HOW = struct.Struct("=QQQ").pack
_TIMESPECS = struct.Struct("=qqqq").pack
_UTIME_OMIT = (1 << 30) - 2
_SECONDS_MAX = (1 << 62) - 1

FALLOC_KEEP_SIZE = 1
FALLOC_PUNCH_HOLE = 2
_FICLONERANGE = 0x4020940D
_FIONREAD = 0x541B  # asm-generic/ioctls.h
_CLONE_RANGE = struct.Struct("=qQQQ").pack


def _load() -> Any:
    return ctypes.CDLL(None, use_errno=True) if sys.platform.startswith("linux") else None


libc: Any = _load()
"""The C library. None on other systems than Linux."""


def _function(name: str, *types: Any) -> Any:
    found = getattr(libc, name, None)
    if found is not None:
        found.argtypes = types
    return found


_int, _uint, _text, _pointer = ctypes.c_int, ctypes.c_uint, ctypes.c_char_p, ctypes.c_void_p
_off = ctypes.c_int64
_statx = _function("statx", _int, _text, _int, _uint, _pointer)
_renameat2 = _function("renameat2", _int, _text, _int, _text, _uint)
_fallocate = _function("fallocate64", _int, _int, _off, _off)
_utimensat = _function("utimensat", _int, _text, _text, _int)
_futimens = _function("futimens", _int, _text)
_fstatfs = _function("fstatfs", _int, _pointer)
_inotify_init = _function("inotify_init1", _int)
_inotify_add = _function("inotify_add_watch", _int, _text, _uint)
_inotify_remove = _function("inotify_rm_watch", _int, _int)
_IN_FLAGS = 0o2004000
"""IN_CLOEXEC and IN_NONBLOCK."""
# The function is variadic, so these types determine how its arguments are passed.
_openat2 = _function("syscall", ctypes.c_long, ctypes.c_long, _text, _text, ctypes.c_long)


def failed(what: bytes = b"") -> OSError:
    """Return the error of the last ctypes call in this thread."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what or None)


def missing() -> OSError:
    return OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def openat2(root: int, path: bytes, flags: int, mode: int) -> int:
    """Open `path` at or below the directory `root` without following symlinks. Needs Linux 5.6."""
    if _openat2 is None:
        raise missing()
    how = _OPEN_HOW(flags, mode, _RESOLVE)
    found: int = _openat2(_NR_OPENAT2, root, path, how, len(how))
    if found < 0:
        raise failed(path)
    return found


class _Buffer(_local):
    """One struct statx for each thread."""

    def __init__(self) -> None:
        self.data = bytearray(STATX_SIZE)
        self._view = (ctypes.c_char * STATX_SIZE).from_buffer(self.data)
        self.address = ctypes.addressof(self._view)


_buffer = _Buffer()


def stat_of(descriptor: int) -> Stat:
    """Return the state of an open descriptor. O_PATH is allowed."""
    if _statx is None:
        return stat_from_os(os.fstat(descriptor))
    if _statx(descriptor, b"", _AT_EMPTY_PATH, _STATX_WANTED, _buffer.address) < 0:
        raise failed()
    return stat_from_statx(_buffer.data)


def stat_at(directory: int, name: bytes) -> Stat:
    """Return the state of a name in a directory; a symlink is not followed, and nothing is
    mounted."""
    if _statx is None:
        return stat_from_os(os.stat(name, dir_fd=directory, follow_symlinks=False))
    flags = _AT_SYMLINK_NOFOLLOW | _AT_NO_AUTOMOUNT
    if _statx(directory, name, flags, _STATX_WANTED, _buffer.address) < 0:
        raise failed(name)
    return stat_from_statx(_buffer.data)


def rename_no_replace(old_dir: int, old: bytes, new_dir: int, new: bytes) -> None:
    """Rename atomically if `new` does not exist. Raises ENOSYS or EINVAL where the file system
    cannot."""
    if _renameat2 is None:
        raise missing()
    if _renameat2(old_dir, old, new_dir, new, _RENAME_NOREPLACE) < 0:
        raise failed(new)


def fallocate(descriptor: int, mode: int, offset: int, count: int) -> None:
    """Call fallocate(2). Unlike posix_fallocate it never writes zeros."""
    if _fallocate is None:
        raise missing()
    while _fallocate(descriptor, mode, offset, count) < 0:
        if ctypes.get_errno() != errno.EINTR:
            raise failed()


def clone_range(to: int, source: int, offset: int, count: int, to_offset: int) -> None:
    """Share extents with FICLONERANGE (ioctl_ficlonerange(2)). A `count` of 0 means up to the
    end."""
    if libc is None or sys.platform == "win32":
        raise missing()
    fcntl.ioctl(to, _FICLONERANGE, _CLONE_RANGE(source, offset, count, to_offset))


_FIEMAP = 0xC020660B
_FIEMAP_HEAD = struct.Struct("=QQIIII")
_FIEMAP_EXTENT = struct.Struct("=QQQQQIIII")
_EXTENTS = 128
_LAST_EXTENT, _SHARED_EXTENT = 0x1, 0x2000  # FIEMAP_EXTENT_LAST, FIEMAP_EXTENT_SHARED


def has_blocks(descriptor: int, offset: int, count: int) -> bool:
    """Tell whether a file owns blocks for all of a range (linux/fiemap.h), so that a write there
    takes no more disk space: no hole, and no block that another file shares. Raises OSError where
    the file system does not tell."""
    if sys.platform == "win32":
        raise missing()
    end = offset + count
    while offset < end:
        head = _FIEMAP_HEAD.pack(offset, end - offset, 0, 0, _EXTENTS, 0)
        answer = bytearray(head + bytes(_EXTENTS * _FIEMAP_EXTENT.size))
        fcntl.ioctl(descriptor, _FIEMAP, answer)
        found = _FIEMAP_HEAD.unpack_from(answer)[3]
        for number in range(min(found, _EXTENTS)):
            at = _FIEMAP_HEAD.size + number * _FIEMAP_EXTENT.size
            start, _, length, _, _, flags, _, _, _ = _FIEMAP_EXTENT.unpack_from(answer, at)
            if start > offset or flags & _SHARED_EXTENT:
                return False
            offset = max(offset, start + length)
            if offset >= end:
                return True
            if flags & _LAST_EXTENT:
                return False
        if not found:
            return False
    return True


def _timespec(time_ns: int | None) -> tuple[int, int]:
    if time_ns is None:
        return 0, _UTIME_OMIT
    seconds, rest = divmod(time_ns, 1_000_000_000)
    # The file system clamps values that it cannot store.
    return max(-_SECONDS_MAX, min(_SECONDS_MAX, seconds)), rest


def set_times(descriptor: int, accessed_ns: int | None, written_ns: int | None) -> None:
    """Set the times of an open file in nanoseconds since 1970. None leaves a time unchanged.
    `descriptor` may be O_PATH on Linux. A time out of range becomes the earliest or latest one."""
    if _utimensat is None or struct.calcsize("l") != 8:
        now = os.fstat(descriptor)
        accessed = now.st_atime_ns if accessed_ns is None else accessed_ns
        written = now.st_mtime_ns if written_ns is None else written_ns
        os.utime(descriptor, ns=(accessed, written))
        return
    times = _TIMESPECS(*_timespec(accessed_ns), *_timespec(written_ns))
    if _futimens(descriptor, times) < 0:
        if ctypes.get_errno() != errno.EBADF:
            raise failed()
        if _utimensat(_AT_FDCWD, own_path(descriptor), times, 0) < 0:
            raise failed()


def file_system(descriptor: int) -> int:
    """Return the type of the file system of a descriptor: `f_type` of statfs(2) on Linux, 0
    elsewhere. It is the first word of a structure of 120 bytes."""
    if _fstatfs is None or not sys.platform.startswith("linux"):
        return 0
    found = ctypes.create_string_buffer(256)
    if _fstatfs(descriptor, found) < 0:
        raise failed()
    return int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


def inotify() -> int:
    """Return a new inotify(7) descriptor."""
    if _inotify_init is None:
        raise missing()
    found: int = _inotify_init(_IN_FLAGS)
    if found < 0:
        raise failed()
    return found


def inotify_add(descriptor: int, path: bytes, mask: int) -> int:
    """Watch the file of a path. Each file has one number, however often it is added."""
    found: int = _inotify_add(descriptor, path, mask)
    if found < 0:
        raise failed(path)
    return found


def unread(descriptor: int) -> int:
    """Return how many bytes can be read now (FIONREAD, ioctl_tty(2))."""
    answer = bytearray(4)
    fcntl.ioctl(descriptor, _FIONREAD, answer)
    return int.from_bytes(answer, sys.byteorder)


def inotify_remove(descriptor: int, watch: int) -> None:
    """Remove a watch. Watches of files that are gone have ended already."""
    _inotify_remove(descriptor, watch)


def own_path(descriptor: int) -> bytes:
    """Return a path to the file of a descriptor, even if it was moved or removed. Calls that refuse
    O_PATH descriptors accept it. It needs /proc."""
    return b"/proc/self/fd/%d" % descriptor
