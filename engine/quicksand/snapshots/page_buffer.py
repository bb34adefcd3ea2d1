"""Guest pages that are held in memory until they are on disk."""

from __future__ import annotations

import ctypes

from quicksand.base.buffers import free, new_plain_buffer, prefault
from quicksand.base.errors import MemoryBudgetError
from quicksand.base.text import size_text
from quicksand.snapshots.differences import address_of
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages, in_order
from quicksand.snapshots.pages import PageRun, RunMap, overlay_runs


class PageBuffer:
    """Room for a number of guest pages, and those that were copied to it: a `PageSource` of the
    storage. A page that is copied again takes the place that it has. Raises MemoryBudgetError if
    the host has no memory, MachineError; call `close` at the end."""

    def __init__(self, pages: int) -> None:
        """``pages``: how many fit. Memory is taken only for those that are prefaulted or copied."""
        self.capacity = pages
        try:
            self._memory = new_plain_buffer(max(pages, 1) * PAGE)
        except OSError as error:
            raise _no_memory(pages) from error
        self._data = memoryview(self._memory)
        self._used = 0
        self._ready = 0
        self._runs: list[PageRun] = []
        self._map = RunMap([])

    @property
    def room(self) -> int:
        """How many further pages fit."""
        return self.capacity - self._used

    @property
    def runs(self) -> Runs:
        """The pages that are held."""
        return [(run.first, run.count) for run in self._runs]

    def prefault(self, pages: int) -> None:
        """Have memory for so many further pages, or as many as fit, so that copying them causes no
        page faults."""
        end = min(self._used + pages, self.capacity)
        try:
            prefault(self._memory, self._ready * PAGE, end * PAGE)
        except OSError as error:
            raise _no_memory(end) from error
        self._ready = max(self._ready, end)

    def missing(self, runs: Runs) -> Runs:
        """Those pages of ``runs`` that are not held."""
        return self._divide(runs)[1]

    def _divide(self, runs: Runs) -> tuple[list[PageRun], Runs]:
        """The pages of ``runs`` that are held, with their places, and those that are not."""
        if not self._runs:
            return [], runs
        held: list[PageRun] = []
        missing: Runs = []
        for first, count in runs:
            start, end = first, first + count
            for run in self._map.within(start, end):
                if run.first > start:
                    missing.append((start, run.first - start))
                held.append(run)
                start = run.end
            if end > start:
                missing.append((start, end - start))
        return held, missing

    def copy(self, runs: Runs, ram: GuestRam, *, leave: int = 0) -> Runs:
        """Copy the pages of ``runs`` from the guest, but leave room for ``leave`` further pages.
        Returns those that did not fit."""
        held, missing = self._divide(runs)
        new, more = _split(missing, max(0, self.room - leave))
        places = [self._used + at for at in in_order(new)]
        # Known only when they are there: a copy that failed leaves what was held before.
        ram.read_to(
            [*((run.first, run.count) for run in held), *new],
            self._data,
            [*(run.at for run in held), *places],
        )
        if new:
            placed = [PageRun(*run, 0, at) for run, at in zip(new, places, strict=True)]
            self._used += count_pages(new)
            self._runs = overlay_runs(placed, self._runs) if self._runs else placed
            self._map = RunMap(self._runs)
        return more

    def read(self, runs: Runs, into: memoryview) -> None:
        """See `PageSource.read`."""
        for (first, count), at in zip(runs, in_order(runs), strict=True):
            self.read_in_place([(first, count)], into[at * PAGE : (at + count) * PAGE], first)

    def read_in_place(self, runs: Runs, into: memoryview, start: int) -> None:
        """See `PageSource.read_in_place`."""
        here, there = address_of(self._data), address_of(into)
        for first, count in runs:
            for run in self._map.within(first, first + count):
                target = there + (run.first - start) * PAGE
                ctypes.memmove(target, here + run.at * PAGE, run.count * PAGE)

    def close(self) -> None:
        """Free the memory at once, in this thread. Idempotent."""
        self._data.release()
        if not self._memory.closed:
            free(self._memory)


def _no_memory(pages: int) -> MemoryBudgetError:
    return MemoryBudgetError(
        f"the host has no {size_text(pages * PAGE)} of memory for the pages of a checkpoint",
        hint="stop another sandbox, or try it again later",
    )


def _split(runs: Runs, room: int) -> tuple[Runs, Runs]:
    """The first ``room`` pages of ``runs``, and the others."""
    for number, (first, count) in enumerate(runs):
        if count > room:
            head = [(first, room)] if room else []
            return [*runs[:number], *head], [(first + room, count - room), *runs[number + 1 :]]
        room -= count
    return runs, []
