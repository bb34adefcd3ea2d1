"""Copying what a checkpoint needs of a guest's memory: as little as can be in the pause.

Two levels, the better one first:

- "soft-dirty": the kernel tells which pages were written since its bits for them were cleared
  (Documentation/admin-guide/mm/soft-dirty.rst). Only these are copied, most of them before the
  pause.
- "anonymous": the kernel tells which pages were written since QEMU started. All of them are copied,
  in the pause.

Bits are cleared for a whole process, and what they say is only worth something with the knowledge
of when that was. A file beside QEMU's sockets, the mark, names the checkpoint in whose pause they
were cleared. It is removed before they are cleared and written when that checkpoint is committed:
whatever happens in between, without the mark the next checkpoint copies all anonymous pages.
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
"""Bytes of warm memory for what the guest writes between the last look at its pages and the pause.
"""

ROUNDS = 3
"""Before the pause, at most: a guest may write as fast as pages are copied."""

ROUND_MIN = 32 * 1024 * 1024
"""Bytes for which a round before the pause pays: copying fewer takes no longer than the stop that a
round needs itself."""

NOT_TRACKED = "this kernel does not track written pages (CONFIG_MEM_SOFT_DIRTY)"
NOT_YET = "nothing tracked what was written since the last checkpoint"


@dataclass(slots=True)
class Copy:
    """What was copied of a guest's memory."""

    runs: list[Run]
    """Ascending; their files are ``pieces``."""
    pieces: list[memoryview]
    since: str | None = None
    """The checkpoint that has all other pages of the run; None if the run has written no others."""


class Copier:
    """Copies the pages for one checkpoint.

    `prepare` and `copy_before` while the VM runs, `copy_rest` while it stands still, `commit` when
    the checkpoint is on disk.
    """

    def __init__(self, ram: GuestRam, mark: Path, run: str, known: str | None) -> None:
        """``known``: the checkpoint whose pages are on disk and were this ``run``'s, if any."""
        self._ram = ram
        self._mark = mark
        self._run = run
        self._known = known
        self._tracked = False
        self._since: str | None = None
        self._exact = False
        """Every page that is not copied yet has its soft-dirty bit set."""
        self._rest = 0
        """Bytes that are still to be copied, when it was last looked."""
        self._buffer: mmap.mmap | None = None
        self._copy = Copy([], [])

    @property
    def note(self) -> str:
        """What was copied, and why not less."""
        if self._since is not None:
            return "the pages written since the last checkpoint were copied (soft-dirty)"
        why = NOT_YET if self._tracked else NOT_TRACKED
        return f"all pages written since the start were copied: {why}"

    def prepare(self) -> int:
        """Choose the level. Returns the bytes that are to be copied. Raises MachineError."""
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
        """Bytes that are still to be copied."""
        return count_pages(self._ram.soft_dirty() if self._exact else self._ram.written()) * PAGE

    async def copy_before(self, pause: Callable[[], AbstractAsyncContextManager[None]]) -> None:
        """Copy most of it while the VM runs, where that is possible, and get memory for the rest.
        ``pause`` makes the VM stand still for an instant.

        Raises MachineError.
        """
        rounds = ROUNDS if self._tracked else 0
        while rounds and self._rest > ROUND_MIN:
            if self._exact:
                # A page written after the look at its bit and before the clearing would be lost.
                async with pause():
                    runs = await asyncio.to_thread(self._take)
            else:
                runs = await asyncio.to_thread(self._take)
            before, self._rest = self._rest, await asyncio.to_thread(self._copy_round, runs)
            rounds = rounds - 1 if self._rest < before // 2 else 0
        self._buffer = await asyncio.to_thread(warm_memory, self._rest + SLACK)

    def _take(self) -> Runs:
        """The pages that are to be copied now; from here on their bits tell of later writes."""
        if self._exact:
            runs = self._ram.soft_dirty()
            self._clear()
            return runs
        # The other way round: a page that is written in between is seen both here and by its bit.
        self._clear()
        self._exact = True
        return self._ram.written()

    def _clear(self) -> None:
        self._mark.unlink(missing_ok=True)
        self._ram.clear_soft_dirty()

    def _copy_round(self, runs: Runs) -> int:
        """Returns the bytes that the guest has written meanwhile."""
        self._read(runs, warm_memory(count_pages(runs) * PAGE))
        return self._look()

    def copy_rest(self) -> Copy:
        """Copy what is left. The VM must stand still. Raises MachineError."""
        runs = self._take() if self._tracked else self._ram.written()
        first, rest = _split(runs, 0 if self._buffer is None else len(self._buffer) // PAGE)
        if self._buffer is not None:
            self._read(first, self._buffer)
        if rest:
            self._read(rest, warm_memory(count_pages(rest) * PAGE))
        return self._copy

    def _read(self, runs: Runs, buffer: mmap.mmap) -> None:
        """Copy pages to ``buffer``; they count instead of what was copied of them before."""
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
        """The checkpoint ``node`` is on disk and the sandbox stands on it: the bits count from its
        pause on."""
        if self._tracked:
            # A torn mark names no checkpoint.
            with contextlib.suppress(OSError):  # it only saves time
                self._mark.write_text(f"{self._run} {node}", encoding="ascii")


def tracks_writes() -> bool:
    """Whether this kernel tracks which pages are written: found out by doing it."""
    with mmap.mmap(-1, 2 * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        first = ctypes.c_char.from_buffer(memory)
        ram = GuestRam(os.getpid(), ctypes.addressof(first), 2 * PAGE)
        del first
        memory[0] = memory[PAGE] = 1
        try:
            # New memory counts as written. Where it does not, that is all we need to know.
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
    """Anonymous memory that is there already: writing to it takes no page faults."""
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
