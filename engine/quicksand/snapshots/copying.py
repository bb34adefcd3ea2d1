"""Copying the guest memory that a checkpoint needs, with as little as possible in the pause.

The way depends on what the kernel tells about written pages (tracking.py). Where it tracks them,
only those written since the last checkpoint are copied. While there are many of them, they are
copied in rounds to their file while the guest runs, each round those written during the one before;
the rest goes to memory in the pause, and to the file after it. Of a guest that runs no further
nothing needs to be copied in the pause. Where nothing is tracked, all anonymous pages are copied to
memory in the pause.

Tracking is of use only if it is known since when. A file beside QEMU's sockets, the mark
(`MachineDir.tracked`), names the level and the checkpoint in whose pause the tracking began anew,
or from which a revert goes on (`track_from`). It is removed before that and written when that
checkpoint is committed; without it the next checkpoint copies all anonymous pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import mmap
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from quicksand.base.buffers import new_buffer
from quicksand.base.errors import MachineError
from quicksand.base.files import write_word
from quicksand.base.regular import read_word
from quicksand.base.threads import in_stoppable_thread
from quicksand.snapshots.differences import address_of
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages, in_order
from quicksand.snapshots.pages import PageRun, RunMap
from quicksand.snapshots.storing import Storage
from quicksand.snapshots.tracking import ANONYMOUS, Level, start_tracking

SLACK = 2 * 1024 * 1024
"""Bytes of prefaulted memory for what the guest writes between the last count and the pause, some
two milliseconds. If it writes more, the pause is some milliseconds longer."""

ROUNDS = 6
"""Rounds of copying before the pause, at most: a guest may write as fast as pages are copied."""

ROUND_MIN = 4 * 1024 * 1024
"""Bytes above which a round before the pause is worthwhile: fewer are copied in two milliseconds.
"""

NOT_YET = "nothing tracked what was written since the last checkpoint"


class Copier:
    """Copies the pages for one checkpoint to its storage.

    Call `prepare`, `copy_before` and `reserve` while the VM runs, `copy_rest` while it is paused,
    `store` after that, and `commit` when the checkpoint is on disk. Raises MachineError, HostError.
    """

    def __init__(
        self, ram: GuestRam, mark: Path, run: str, storage: Storage, *, stays_paused: bool
    ) -> None:
        """``stays_paused``: the guest runs no further after the pause, unless all fails."""
        self._ram = ram
        self._mark = mark
        self._run = run
        self._storage = storage
        self._stays_paused = stays_paused
        self._level = Level(name=ANONYMOUS)
        self._since: str | None = None
        self._exact = False
        """Whether the tracker lists every page that is still to be copied."""
        self._rest = 0
        """Bytes that were still to be copied at the last count."""
        self._buffer: mmap.mmap | None = None
        self._paused: Runs = []
        """The pages copied to the buffer, or to be copied from the paused VM."""

    @property
    def note(self) -> str:
        """The pages that are copied, and the reason why not fewer; for people."""
        if self._since is not None:
            return f"the pages written since the last checkpoint were copied ({self._level.name})"
        why = self._level.why if self._level.tracker is None else NOT_YET
        return f"all pages written since the start were copied: {why}"

    def prepare(self) -> int:
        """Choose the level; returns the bytes to copy."""
        known = self._storage.open()
        self._level = start_tracking(self._ram)
        self._storage.is_compared_later = self._level.tracker is None
        tracked = self._level.tracker is not None and known is not None
        if tracked and self._read_mark() == [self._run, known, self._level.name]:
            self._since = known
            self._exact = True
            self._storage.expect_new_pages()
        self._count()
        return self._rest

    def _read_mark(self) -> list[str]:
        try:
            return read_word(self._mark).split(" ")
        except (OSError, ValueError):
            return []

    def _count(self) -> None:
        """Count the bytes that are still to be copied."""
        tracker = self._level.tracker if self._exact else None
        self._rest = count_pages(self._ram.written() if tracker is None else tracker.look()) * PAGE

    async def copy_before(self, pause: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Copy most pages while the VM runs, if the kernel tracks writes. ``pause`` pauses the VM
        for a moment. Raises CancelledError within a step."""
        rounds = ROUNDS if self._level.tracker is not None and not self._lets_vm_wait else 0
        while rounds and self._rest > ROUND_MIN:
            if self._exact and self._level.needs_stop:
                async with pause():
                    runs = await asyncio.to_thread(self._take)
            else:
                runs = await asyncio.to_thread(self._take)
            before = self._rest
            await in_stoppable_thread(functools.partial(self._copy_round, runs))
            rounds = rounds - 1 if self._rest < before // 2 else 0

    @property
    def _lets_vm_wait(self) -> bool:
        """Whether pages are copied from the paused VM after all else. If it runs nevertheless,
        which only a tracker notices, the checkpoint is worth nothing."""
        return self._stays_paused and self._level.tracker is not None

    def _take(self) -> Runs:
        """The pages to copy now; from here on the tracker lists later writes."""
        tracker = self._level.tracker
        if tracker is None:
            return self._ram.written()
        self._mark.unlink(missing_ok=True)
        if self._exact:
            return tracker.take()
        # Cleared first: a page written in between is then both copied now and listed later.
        tracker.clear()
        self._exact = True
        return self._ram.written()

    def _copy_round(self, runs: Runs, check: Callable[[], None]) -> None:
        self._storage.add(runs, self._ram, check)
        self._count()

    def reserve(self) -> None:
        """Allocate memory for the pages that are copied in the pause."""
        if not self._lets_vm_wait:
            self._count()
            self._buffer = warm_memory(self._rest + SLACK)

    def copy_rest(self) -> None:
        """Copy the remaining pages. The VM must be paused."""
        self._paused = self._take()
        if self._lets_vm_wait:
            return
        room = len(self._buffer) // PAGE if self._buffer is not None else 0
        self._paused, more = _split(self._paused, room)
        if self._buffer is not None:
            with memoryview(self._buffer)[: count_pages(self._paused) * PAGE] as data:
                self._ram.read(self._paused, data)
        # More than expected: more memory for them could be more than the host has.
        self._storage.add(more, self._ram, is_paused=True)

    def store(self) -> None:
        """Write what was copied in the pause. Raises MachineError if the VM was to stay paused and
        did not."""
        if self._buffer is not None:
            self._storage.add(self._paused, Copied(self._paused, memoryview(self._buffer)))
            self._buffer = None
            return
        self._storage.add(self._paused, self._ram)
        assert self._level.tracker is not None
        if self._level.tracker.look():
            raise MachineError(
                "the guest was resumed while its memory was copied", hint="try it again"
            )

    def commit(self, node: str) -> None:
        """Write the mark: the checkpoint ``node`` is on disk, and writes since its pause are
        tracked."""
        if self._level.tracker is not None:
            _write_mark(self._mark, self._run, node, self._level)


def track_from(node: str, ram: GuestRam, mark: Path, run: str) -> None:
    """Have the kernel track what a machine writes that has exactly the memory of the checkpoint
    ``node`` at this moment, if that is possible. The VM must not run. Raises MachineError."""
    level = start_tracking(ram)
    if level.tracker is not None:
        level.tracker.clear()
        _write_mark(mark, run, node, level)


def _write_mark(mark: Path, run: str, node: str, level: Level) -> None:
    # A missing mark costs only time.
    with contextlib.suppress(OSError):
        write_word(mark, f"{run} {node} {level.name}")


class Copied:
    """Pages in memory: a `PageSource` of the storage."""

    def __init__(self, runs: Runs, data: memoryview) -> None:
        """``data``: the pages of ``runs``, in order."""
        places = zip(runs, in_order(runs), strict=True)
        self._runs = RunMap([PageRun(first, count, 0, at) for (first, count), at in places])
        self._address = address_of(data)
        self._data = data

    def read(self, runs: Runs, into: memoryview) -> None:
        """See `Source.read`."""
        for (first, count), at in zip(runs, in_order(runs), strict=True):
            self.read_in_place([(first, count)], into[at * PAGE : (at + count) * PAGE], first)

    def read_in_place(self, runs: Runs, into: memoryview, start: int) -> None:
        """See `Source.read_in_place`."""
        there = address_of(into)
        for first, count in runs:
            for run in self._runs.within(first, first + count):
                target = there + (run.first - start) * PAGE
                ctypes.memmove(target, self._address + run.at * PAGE, run.count * PAGE)


def warm_memory(size: int) -> mmap.mmap:
    """Prefaulted anonymous memory of ``size`` bytes: writing to it causes no page faults."""
    memory = new_buffer(max(size, PAGE))
    populate = getattr(mmap, "MADV_POPULATE_WRITE", 23)  # Linux 5.14
    try:
        memory.madvise(populate)
    except OSError:
        for start in range(0, len(memory), PAGE):
            memory[start] = 0
    return memory


def _split(runs: Runs, room: int) -> tuple[Runs, Runs]:
    """The first ``room`` pages of ``runs``, and the others."""
    for number, (first, count) in enumerate(runs):
        if count > room:
            head = [(first, room)] if room else []
            return [*runs[:number], *head], [(first + room, count - room), *runs[number + 1 :]]
        room -= count
    return runs, []
