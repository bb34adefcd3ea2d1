"""Copying the guest memory that a checkpoint needs, with as little as possible in the pause.

What the kernel tells about written pages decides how (tracking.py). Where it tracks them, only
those written since the last checkpoint are copied, most of them before the pause.

What is tracked means something only if it is known since when. A file beside QEMU's sockets, the
mark (`MachineDir.tracked`), names the level and the checkpoint in whose pause the tracking began
anew. It is removed before that and written when that checkpoint is committed; without it the next
checkpoint copies all anonymous pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import mmap
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages
from quicksand.snapshots.pages import Run, overlay_runs
from quicksand.snapshots.tracking import ANONYMOUS, Level, start_tracking

SLACK = 16 * 1024 * 1024
"""Bytes of prefaulted memory for what the guest writes between the last count and the pause."""

ROUNDS = 3
"""Rounds of copying before the pause, at most: a guest may write as fast as pages are copied."""

ROUND_MIN = 32 * 1024 * 1024
"""Bytes above which a round before the pause is worthwhile: copying fewer takes no longer than the
short stop that each round needs."""

NOT_YET = "nothing tracked what was written since the last checkpoint"


@dataclass(slots=True)
class Copy:
    """What was copied of a guest's memory."""

    runs: list[Run]
    """Ascending; the file of each is an index into ``pieces``."""
    pieces: list[memoryview]
    since: str | None = None
    """The checkpoint that has all other pages that this run of QEMU has written; None if it has
    written no others."""


class Copier:
    """Copies the pages for one checkpoint.

    Call `prepare` and `copy_before` while the VM runs, `copy_rest` while it is paused, and `commit`
    when the checkpoint is on disk.
    """

    def __init__(self, ram: GuestRam, mark: Path, run: str, known: str | None) -> None:
        """``known``: the checkpoint on disk that has pages of this ``run``, if there is one."""
        self._ram = ram
        self._mark = mark
        self._run = run
        self._known = known
        self._level = Level(name=ANONYMOUS)
        self._since: str | None = None
        self._exact = False
        """Whether the tracker lists every page that is still to be copied."""
        self._rest = 0
        """Bytes that were still to be copied at the last count."""
        self._buffer: mmap.mmap | None = None
        self._copy = Copy([], [])

    @property
    def note(self) -> str:
        """What is copied, and why not less; for people."""
        if self._since is not None:
            return f"the pages written since the last checkpoint were copied ({self._level.name})"
        why = self._level.why if self._level.tracker is None else NOT_YET
        return f"all pages written since the start were copied: {why}"

    def prepare(self) -> int:
        """Choose the level; returns the bytes to copy. Raises MachineError."""
        self._level = start_tracking(self._ram)
        tracked = self._level.tracker is not None and self._known is not None
        if tracked and self._read_mark() == [self._run, self._known, self._level.name]:
            self._since = self._known
            self._exact = True
        self._copy.since = self._since
        self._rest = self._look()
        return self._rest

    def _read_mark(self) -> list[str]:
        try:
            return self._mark.read_text(encoding="ascii").split(" ")
        except (OSError, ValueError):
            return []

    def _look(self) -> int:
        """Count the bytes that are still to be copied."""
        tracker = self._level.tracker if self._exact else None
        return count_pages(self._ram.written() if tracker is None else tracker.look()) * PAGE

    async def copy_before(self, pause: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Copy most pages while the VM runs, if the kernel tracks writes, and allocate memory for
        the rest. ``pause`` pauses the VM for a moment. Raises MachineError.
        """
        rounds = ROUNDS if self._level.tracker is not None else 0
        while rounds and self._rest > ROUND_MIN:
            if self._exact and self._level.needs_stop:
                async with pause():
                    runs = await asyncio.to_thread(self._take)
            else:
                runs = await asyncio.to_thread(self._take)
            before, self._rest = self._rest, await asyncio.to_thread(self._copy_round, runs)
            rounds = rounds - 1 if self._rest < before // 2 else 0
        self._buffer = await asyncio.to_thread(warm_memory, self._rest + SLACK)

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

    def _copy_round(self, runs: Runs) -> int:
        """Copy ``runs``; returns the bytes that the guest has written meanwhile."""
        self._read(runs, warm_memory(count_pages(runs) * PAGE))
        return self._look()

    def copy_rest(self) -> Copy:
        """Copy the remaining pages. The VM must be paused. Raises MachineError."""
        runs = self._take()
        first, rest = _split(runs, 0 if self._buffer is None else len(self._buffer) // PAGE)
        if self._buffer is not None:
            self._read(first, self._buffer)
        if rest:
            self._read(rest, warm_memory(count_pages(rest) * PAGE))
        return self._copy

    def _read(self, runs: Runs, buffer: mmap.mmap) -> None:
        """Copy pages to ``buffer``; they supersede earlier copies of the same pages."""
        if not runs:
            return
        data = memoryview(buffer)[: count_pages(runs) * PAGE]
        self._ram.read(runs, data)
        placed, at = [], 0
        for first, count in runs:
            placed.append(Run(first, count, len(self._copy.pieces), at))
            at += count
        self._copy.pieces.append(data)
        self._copy.runs = overlay_runs(placed, self._copy.runs)

    def commit(self, node: str) -> None:
        """Write the mark: the checkpoint ``node`` is on disk, and what was written since its pause
        is tracked."""
        if self._level.tracker is not None:
            # A torn mark names no checkpoint, and a missing one costs only time.
            with contextlib.suppress(OSError):
                self._mark.write_text(f"{self._run} {node} {self._level.name}", encoding="ascii")


def warm_memory(size: int) -> mmap.mmap:
    """Prefaulted anonymous memory of ``size`` bytes: writing to it causes no page faults."""
    memory = mmap.mmap(-1, max(size, PAGE), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
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
