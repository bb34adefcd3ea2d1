"""The keeper's files: logs that stay bounded, and trees that go."""

import os
from collections.abc import Callable

LOG_LIMIT = 512 * 1024
"""Bytes of a log piece; one older piece is kept beside it, so a log takes twice this at most."""

CHUNK = 64 * 1024
"""Bytes that are read at once."""


class BoundedLog:
    """A log file of two pieces: a guest that writes for ever cannot fill the disk."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115
        self.size = self.file.tell()

    def write(self, data: bytes) -> None:
        try:
            if self.size + len(data) > LOG_LIMIT:
                self.rotate()
            self.size += self.file.write(data)
        except OSError:
            # A full disk loses log lines; it must not stop QEMU, whose pipe would fill up.
            return

    def rotate(self) -> None:
        """Begin a new piece. May fail half-way on a full disk; the next write tries again."""
        if os.path.exists(self.path):
            os.replace(self.path, self.path + ".1")
        file = open(self.path, "ab", buffering=0)  # noqa: SIM115
        self.file.close()
        self.file, self.size = file, 0


def drain(pipe: int, log: BoundedLog) -> None:
    """Take what is left in a pipe; its writer is gone, so this ends."""
    os.set_blocking(pipe, False)
    try:
        while data := os.read(pipe, CHUNK):
            log.write(data)
    except BlockingIOError:
        return


def remove_tree(path: str) -> None:
    """Remove a directory of ours and all below it, as far as that is possible. (shutil would cost
    the start of a sandbox a hundredth of a second.)"""
    if os.path.islink(path):
        return
    for directory, directories, names in os.walk(path, topdown=False):
        for name in names:
            _try(os.unlink, os.path.join(directory, name))
        for name in directories:
            inner = os.path.join(directory, name)
            _try(os.unlink if os.path.islink(inner) else os.rmdir, inner)
    _try(os.rmdir, path)


def remove_file(path: str) -> None:
    """As far as that is possible."""
    _try(os.unlink, path)


def _try(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except OSError:
        return  # somebody was quicker, or holds it
