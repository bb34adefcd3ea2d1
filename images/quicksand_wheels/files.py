"""Files of the host, and threads that work on them."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

T = TypeVar("T")

GIB = 1024 * 1024 * 1024


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; anything else, such as a FIFO, is not waited for. Raises
    OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def create(path: Path) -> BinaryIO:
    """Make a new file for writing, this user's only. Raises OSError, also if the name is taken."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")


async def in_thread(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread. A cancellation waits for its end, so that the caller cleans up
    after it and not before it."""
    task = asyncio.ensure_future(asyncio.to_thread(function))
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved, since only the cancellation is raised
        raise cancelled
    return task.result()


def size_text(size: int) -> str:
    """Return a size in bytes as text: 512 MiB, and from one GiB on 1.5 GiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size >> 20} MiB"
