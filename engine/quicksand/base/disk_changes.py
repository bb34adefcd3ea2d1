"""Tells that something in directories has changed, by inotify(7) where the system has it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Collection
from pathlib import Path

SETTLE_S = 0.03
"""Seconds after a change until it is told: what is written makes several."""

READ = 64 * 1024

# <sys/inotify.h>: what changes a directory's list of names.
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_ONLYDIR = 0x01000000
IN_NONBLOCK, IN_CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
NAMES = IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE


class DiskChanges:
    """Follows directories. Without inotify, nothing is told, and whoever waits looks regularly.
    Used on one loop."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._watches: dict[Path, int] = {}
        self._descriptor = -1
        with contextlib.suppress(AttributeError):
            self._descriptor = self._libc.inotify_init1(IN_NONBLOCK | IN_CLOEXEC)
        if self._descriptor >= 0:
            self._loop.add_reader(self._descriptor, self._read)

    def follow(self, directories: Collection[Path]) -> bool:
        """Follows these directories and no others; returns whether there are new ones, in which
        something may have changed before. Those that are not there are left out, as are those
        beyond the system's limit."""
        if self._descriptor < 0:
            return False
        before = set(self._watches.items())
        wanted = frozenset(directories)
        for path in self._watches.keys() - wanted:
            # One whose directory was removed is gone already, which is no error that matters.
            self._libc.inotify_rm_watch(self._descriptor, self._watches.pop(path))
        for path in wanted:
            # Again for those that are known: another directory may have the name by now.
            watch = self._libc.inotify_add_watch(
                self._descriptor, os.fsencode(path), NAMES | IN_ONLYDIR
            )
            if watch >= 0:
                self._watches[path] = watch
            else:
                self._watches.pop(path, None)
        return not before >= set(self._watches.items())

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, READ):
                self._changed.set()

    def note(self) -> None:
        """Tells as if something had changed."""
        self._changed.set()

    async def wait(self, seconds: float) -> None:
        """Waits until something has changed since the last call, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
                await asyncio.sleep(SETTLE_S)
        self._changed.clear()

    def close(self) -> None:
        """Ends it; idempotent."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1
