"""Large buffers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import mmap
import os
from pathlib import Path
from typing import Any

POPULATE_READ, POPULATE_WRITE = 22, 23
"""MADV_POPULATE_READ, MADV_POPULATE_WRITE (Linux 5.14, asm-generic/mman-common.h)."""

DONTNEED = 4
"""MADV_DONTNEED (Linux, asm-generic/mman-common.h)."""


def new_buffer(size: int) -> mmap.mmap:
    """Return ``size`` bytes of anonymous memory, page-aligned; in huge pages where the host has
    some, since the first touch of a thousand small pages takes as long as copying as much."""
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return memory


def new_plain_buffer(size: int) -> mmap.mmap:
    """Return ``size`` bytes of anonymous memory, page-aligned, without asking for huge pages: for
    hundreds of MiB that are needed within some hundredths of a second. On a host that is itself a
    virtual machine, free huge pages may have been given back (free page reporting). To touch 264
    MiB took 145 ms of processor time with these, 35 with small pages, 12 with huge ones in place.
    """
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def map_new_file(path: Path, size: int) -> tuple[mmap.mmap, int]:
    """Make a file of ``size`` bytes and map it: data written to this memory is in the file even if
    this process is killed. Returns the map and the file's descriptor, through which space is
    reserved before bytes are touched (`reserve`): a full disk would end this process (SIGBUS).
    Raises OSError, and then leaves no file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, size)
        return mmap.mmap(descriptor, size), descriptor
    except BaseException:
        os.close(descriptor)
        path.unlink()
        raise


def reserve(descriptor: int, start: int, end: int) -> None:
    """Have disk space for a file's bytes from ``start`` to ``end``. Raises OSError."""
    if end > start:
        os.posix_fallocate(descriptor, start, end - start)


def free(memory: mmap.mmap) -> None:
    """Free the memory of a buffer and close it, once nothing refers to it. Other threads run
    meanwhile: just forgetting it would hold Python's lock for some ten milliseconds."""
    with contextlib.suppress(OSError):  # then closing it does all
        _advise(memory, 0, len(memory), DONTNEED)
    # A traceback may hold a view; the addresses are freed with it.
    with contextlib.suppress(BufferError):
        memory.close()


def prefault(memory: mmap.mmap, start: int, end: int) -> None:
    """Make the pages of ``memory`` from byte ``start`` to ``end`` present, so that writing to them
    causes no page faults. Their contents stay. Other threads run meanwhile: `mmap.madvise` would
    hold Python's lock for some ten milliseconds. Raises OSError if the host has no memory."""
    if not _advise(memory, start, end, POPULATE_WRITE):
        for at in range(start - start % mmap.PAGESIZE, end, mmap.PAGESIZE):
            memory[at] = memory[at]


def fetch(memory: mmap.mmap, start: int, end: int) -> None:
    """Have the pages of a mapped file from byte ``start`` to ``end`` read from the disk and mapped.
    Other threads run meanwhile. Does nothing in a kernel that lacks this: the file is then read
    when it is used. Raises OSError if it cannot be read."""
    _advise(memory, start, end, POPULATE_READ)


def _advise(memory: mmap.mmap, start: int, end: int, advice: int) -> bool:
    """madvise(2); False if the kernel does not know the advice. Raises OSError."""
    start -= start % mmap.PAGESIZE
    if start >= end:
        return True
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if _madvise()(address + start, end - start, advice) == 0:
        return True
    code = ctypes.get_errno()
    if code != errno.EINVAL:
        raise OSError(code, os.strerror(code))
    return False


@functools.cache
def _madvise() -> Any:
    call = ctypes.CDLL(None, use_errno=True).madvise
    call.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return call
