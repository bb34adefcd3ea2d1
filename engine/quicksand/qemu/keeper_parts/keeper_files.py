"""The keeper's files: bounded logs, locks, and removing."""

import fcntl
import os
import time
from io import FileIO

from quicksand.base.regular import open_regular
from quicksand.base.removal import remove

LOG_LIMIT = 512 * 1024
"""Bytes of a log file. One older file is kept beside it, so a log takes at most twice this."""

RESERVED = 256
"""Bytes for the record of how a run ended: more than it ever has."""

CHUNK = 64 * 1024
"""Bytes to read at once."""

LOCK_POLL_S = 0.005
"""Seconds between two attempts to take a lock: flock(2) has no limit of time."""


class BoundedLog:
    """A log of two files with bounded size: a guest that writes for ever cannot fill the disk."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = self.open()
        self.size = self.file.tell()

    def open(self) -> FileIO:
        """Open the file for appending. Raises OSError."""
        return open(self.path, "ab", buffering=0, opener=open_regular)

    def write(self, data: bytes) -> None:
        try:
            if self.size + len(data) > LOG_LIMIT:
                self.rotate()
            self.size += self.file.write(data)
        except OSError:
            # On a full disk log lines are dropped; if the pipe filled up, QEMU would block.
            return

    def rotate(self) -> None:
        """Start a new file. Raises OSError, possibly half-way; the next write tries again."""
        if os.path.exists(self.path):
            os.replace(self.path, self.path + ".1")
        file = self.open()
        self.file.close()
        self.file, self.size = file, 0


class Reserved:
    """A small file that is written at the end, perhaps on a full disk: its space is reserved now,
    by a file beside it."""

    def __init__(self, path: str) -> None:
        self.path, self.beside = path, path + ".tmp"
        try:
            self.write(" " * RESERVED)
        except OSError:
            return  # there may be space at the end

    def put(self, text: str) -> None:
        """Replace the file. Raises OSError."""
        self.write(text.ljust(RESERVED))
        os.replace(self.beside, self.path)

    def write(self, text: str) -> None:
        descriptor = open_regular(self.beside, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW)
        try:
            # Not truncated before, so that it keeps its space.
            os.truncate(descriptor, os.write(descriptor, text.encode("ascii")))
        finally:
            os.close(descriptor)


def drain(pipe: int, log: BoundedLog) -> None:
    """Copy to the log what is left in a pipe whose writer has ended."""
    os.set_blocking(pipe, False)
    try:
        while data := os.read(pipe, CHUNK):
            log.write(data)
    except BlockingIOError:
        return


def remove_tree(path: str, part: str = "") -> None:
    """Remove a directory that has quicksand's mark, or a part of it. Files that cannot be removed
    are left to `Registry.reap`."""
    try:
        remove(path, part=part)
    except OSError:
        return


def remove_file(path: str) -> None:
    """Remove a file if possible."""
    try:
        os.unlink(path)
    except OSError:
        return


def try_lock(path: str) -> int | None:
    """Lock a file with flock(2), creating it if necessary. Returns its descriptor, or None if the
    lock is held by another process. Raises OSError if it cannot be opened."""
    descriptor = open_regular(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def open_if_there(path: str) -> int | None:
    """The descriptor of a file; None if it cannot be opened."""
    try:
        return open_regular(path, os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return None


def await_lock(descriptor: int, seconds: float) -> None:
    """Wait until the process that holds the flock of an open file has ended or released it, but no
    longer than so many seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError:
            time.sleep(LOCK_POLL_S)
