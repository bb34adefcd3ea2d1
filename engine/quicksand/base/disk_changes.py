"""Tells that something in directories has changed, by inotify(7) where the system has it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Collection, Iterator
from pathlib import Path

SETTLE_S = 0.03
"""Seconds from a change until it is reported: one write causes several changes."""

READ = 64 * 1024

# <sys/inotify.h>: what changes a directory's list of names.
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_ONLYDIR = 0x01000000
IN_IGNORED = 0x8000
IN_NONBLOCK, IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
NAMES = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE

EVENT = struct.Struct("=iIII")
"""struct inotify_event: watch, mask, cookie, length of the name that follows."""


class DiskChanges:
    """Follows directories. Without inotify, nothing is reported, and waiters look regularly. Used
    on one loop."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._watches: dict[Path, int] = {}
        self._followed: dict[int, Path] = {}
        """The same, by watch."""
        self._left_out: set[Path] = set()
        """Existing directories that could not be watched."""
        self._descriptor = -1
        with contextlib.suppress(AttributeError):
            self._descriptor = self._libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._read)

    @property
    def is_whole(self) -> bool:
        """Whether every change in the followed directories is noticed. A directory that did not
        exist when it was to be followed does not count."""
        return self._descriptor >= 0 and not self._left_out

    def follow(self, directories: Collection[Path]) -> bool:
        """Follows these directories and no others; returns whether there are new ones, in which
        something may have changed before. Directories that do not exist are left out, as are those
        beyond the system's limit."""
        wanted = frozenset(directories)
        self._left_out &= wanted
        for path in self._watches.keys() - wanted:
            self._drop(path)
        return self.follow_also(wanted)

    def follow_also(self, directories: Collection[Path]) -> bool:
        """Does the same as `follow`, but keeps those already followed. One of these that is named
        again is looked up anew: its name may lead to another directory by now, or to none."""
        if self._descriptor < 0:
            return False
        return sum(map(self._add, directories)) > 0

    def _add(self, path: Path) -> bool:
        """Follows a directory; returns whether it was not followed before."""
        watch = self._libc.inotify_add_watch(
            self._descriptor, os.fsencode(path), NAMES | IN_ONLYDIR
        )
        if watch < 0 and ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR):
            self._left_out.add(path)
        else:
            self._left_out.discard(path)
        before = self._watches.get(path)
        if watch >= 0 and watch == before:
            return False
        if before is not None:
            self._drop(path)
        if watch < 0:
            return False
        self._watches[path], self._followed[watch] = watch, path
        return True

    def _drop(self, path: Path) -> None:
        watch = self._watches.pop(path)
        # Two paths may lead to one directory, which then has one watch.
        if self._followed.get(watch) == path:
            del self._followed[watch]
            # If its directory was removed, the watch is already gone, and the error is none.
            self._libc.inotify_rm_watch(self._descriptor, watch)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._descriptor, READ):
                for watch, mask in _events(data):
                    self._note(watch, mask)

    def _note(self, watch: int, mask: int) -> None:
        if not mask & IN_IGNORED:
            self._changed.set()
        elif (path := self._followed.pop(watch, None)) is not None:
            # The directory is gone, and the watch with it.
            self._watches.pop(path, None)
            self._changed.set()

    def note(self) -> None:
        """Reports a change by hand."""
        self._changed.set()

    async def wait(self, seconds: float) -> bool:
        """Waits until something has changed since the last call, at most so long; returns whether
        it has."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                await asyncio.sleep(SETTLE_S)
        has_changed = self._changed.is_set()
        self._changed.clear()
        return has_changed

    def close(self) -> None:
        """Ends it; idempotent."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1


def _events(data: bytes) -> Iterator[tuple[int, int]]:
    """Yields the watch and the mask of each event."""
    at = 0
    while at + EVENT.size <= len(data):
        watch, mask, _, length = EVENT.unpack_from(data, at)
        yield watch, mask
        at += EVENT.size + length
