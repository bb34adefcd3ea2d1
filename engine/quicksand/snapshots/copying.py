"""Copying the guest memory that a checkpoint needs, with as little as possible in the pause.

There are two levels, the better one first:

- "soft-dirty": the kernel tells which pages were written since their soft-dirty bits were cleared
  (Linux, Documentation/admin-guide/mm/soft-dirty.rst). Only these are copied, most of them before
  the pause.
- "anonymous": the kernel tells which pages were written since QEMU started. All of them are copied
  in the pause.

The bits can only be cleared for a whole process, and they mean something only if it is known when
that was. A file beside QEMU's sockets, the mark (`MachineDir.tracked`), names the checkpoint in
whose pause they were cleared. It is removed before they are cleared and written when that
checkpoint is committed; without it the next checkpoint copies all anonymous pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import MachineError
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages
from quicksand.snapshots.pages import Run, overlay_runs

SLACK = 16 * 1024 * 1024
"""Bytes of prefaulted memory for what the guest writes between the last count and the pause."""

ROUNDS = 3
"""Rounds of copying before the pause, at most: a guest may write as fast as pages are copied."""

ROUND_MIN = 32 * 1024 * 1024
"""Bytes above which a round before the pause is worthwhile: copying fewer takes no longer than the
short stop that each round needs."""

NOT_TRACKED = "this kernel does not track written pages (CONFIG_MEM_SOFT_DIRTY)"
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
        self._tracked = False
        self._since: str | None = None
        self._exact = False
        """Whether every page that is still to be copied has its soft-dirty bit set."""
        self._rest = 0
        """Bytes that were still to be copied at the last count."""
        self._buffer: mmap.mmap | None = None
        self._copy = Copy([], [])

    @property
    def note(self) -> str:
        """What is copied, and why not less; for people."""
        if self._since is not None:
            return "the pages written since the last checkpoint were copied (soft-dirty)"
        why = NOT_YET if self._tracked else NOT_TRACKED
        return f"all pages written since the start were copied: {why}"

    def prepare(self) -> int:
        """Choose the level; returns the bytes to copy. Raises MachineError."""
        self._tracked = tracks_writes()
        if self._tracked and self._known is not None and self._read_mark() == self._known:
            self._since = self._known
            self._exact = True
        self._copy.since = self._since
        self._rest = self._look()
        return self._rest

    def _read_mark(self) -> str:
        try:
            run, _, node = self._mark.read_text(encoding="ascii").partition(" ")
        except (OSError, ValueError):
            return ""
        return node if run == self._run else ""

    def _look(self) -> int:
        """Count the bytes that are still to be copied."""
        return count_pages(self._ram.soft_dirty() if self._exact else self._ram.written()) * PAGE

    async def copy_before(self, pause: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Copy most pages while the VM runs, if the kernel tracks writes, and allocate memory for
        the rest. ``pause`` pauses the VM for a moment. Raises MachineError.
        """
        rounds = ROUNDS if self._tracked else 0
        while rounds and self._rest > ROUND_MIN:
            if self._exact:
                # A page written between reading the bits and clearing them would be lost.
                async with pause():
                    runs = await asyncio.to_thread(self._take)
            else:
                runs = await asyncio.to_thread(self._take)
            before, self._rest = self._rest, await asyncio.to_thread(self._copy_round, runs)
            rounds = rounds - 1 if self._rest < before // 2 else 0
        self._buffer = await asyncio.to_thread(warm_memory, self._rest + SLACK)

    def _take(self) -> Runs:
        """The pages to copy now; from here on the bits record later writes."""
        if self._exact:
            runs = self._ram.soft_dirty()
            self._clear()
            return runs
        # Cleared first: a page written in between is then both copied now and marked by its bit.
        self._clear()
        self._exact = True
        return self._ram.written()

    def _clear(self) -> None:
        self._mark.unlink(missing_ok=True)
        self._ram.clear_soft_dirty()

    def _copy_round(self, runs: Runs) -> int:
        """Copy ``runs``; returns the bytes that the guest has written meanwhile."""
        self._read(runs, warm_memory(count_pages(runs) * PAGE))
        return self._look()

    def copy_rest(self) -> Copy:
        """Copy the remaining pages. The VM must be paused. Raises MachineError."""
        runs = self._take() if self._tracked else self._ram.written()
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
        """Write the mark: the checkpoint ``node`` is on disk, and the bits record what was written
        since its pause."""
        if self._tracked:
            # A torn mark names no checkpoint, and a missing one costs only time.
            with contextlib.suppress(OSError):
                self._mark.write_text(f"{self._run} {node}", encoding="ascii")


def tracks_writes() -> bool:
    """Whether this kernel tracks which pages are written (CONFIG_MEM_SOFT_DIRTY); tries it out."""
    with mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        first = ctypes.c_char.from_buffer(memory)
        ram = GuestRam(os.getpid(), ctypes.addressof(first), 2 * PAGE)
        del first
        memory[0] = memory[PAGE] = 1
        try:
            # New memory counts as written.
            if ram.soft_dirty() != [(0, 2)]:
                return False
            ram.clear_soft_dirty()
            if ram.soft_dirty():
                return False
            memory[PAGE] = 2
            return ram.soft_dirty() == [(1, 1)]
        except MachineError:
            return False


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
