"""Guest pages that are held until they are in a checkpoint's files: in the memory of this process
only, or in that of a file, which outlives the process."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from quicksand.base.buffers import free, map_new_file, new_plain_buffer, prefault, reserve
from quicksand.base.error_text import size_text
from quicksand.base.errors import HistoryError, MemoryBudgetError
from quicksand.base.files import map_os_errors
from quicksand.base.regular import open_file
from quicksand.snapshots.differences import address_of
from quicksand.snapshots.guest_ram import PAGE, GuestRam, Runs, count_pages, in_order
from quicksand.snapshots.pages import PageRun, RunMap, overlay_runs


class HeldPages:
    """Pages that were copied, as a `PageSource` for the storage. Call `close` at the end."""

    def __init__(self, memory: mmap.mmap, places: Sequence[PageRun]) -> None:
        """``places``: the place of each page in ``memory``, ascending."""
        self._memory = memory
        self._data = memoryview(memory)
        self.places = places
        self._map = RunMap(places)

    @classmethod
    def found(cls, path: Path, places: Sequence[PageRun]) -> HeldPages:
        """The pages of another process's `PageBuffer` in the file ``path``. Raises HistoryError."""
        try:
            with open_file(path) as file:
                return cls(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY), places)
        except (OSError, ValueError) as error:
            raise HistoryError(f"{path} cannot be read: {error}") from error

    @property
    def runs(self) -> Runs:
        """The pages that are held."""
        return [(run.first, run.count) for run in self.places]

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
        """Free the memory at once, in this thread; a file stays. Idempotent."""
        self._data.release()
        if not self._memory.closed:
            free(self._memory)


class PageBuffer(HeldPages):
    """Room for a number of guest pages, and the pages copied to it. A page that is copied again
    keeps its place. Raises MemoryBudgetError if the host has no memory, DiskSpaceError or PathError
    for the file, MachineError."""

    def __init__(self, pages: int, path: Path | None = None) -> None:
        """``pages``: the number that fit. Memory is taken only for those that are prefaulted or
        copied. ``path``: a new file in whose memory they will be."""
        self.capacity = pages
        self._path = path
        self._descriptor = -1
        self._used = 0
        self._ready = 0
        size = max(pages, 1) * PAGE
        with self._errors_named(pages):
            if path is None:
                memory = new_plain_buffer(size)
            else:
                memory, self._descriptor = map_new_file(path, size)
        super().__init__(memory, [])

    @contextlib.contextmanager
    def _errors_named(self, pages: int) -> Iterator[None]:
        """Raise an error that names what the host lacks for so many pages."""
        if self._path is not None:
            with map_os_errors(self._path):
                yield
            return
        try:
            yield
        except OSError as error:
            raise _no_memory(pages) from error

    @property
    def room(self) -> int:
        """The number of further pages that fit."""
        return self.capacity - self._used

    def prefault(self, pages: int) -> None:
        """Prefault memory for so many further pages, or as many as fit, so that copying them causes
        no page faults."""
        end = min(self._used + pages, self.capacity)
        if end <= self._ready:
            return
        with self._errors_named(end):
            if self._descriptor >= 0:
                reserve(self._descriptor, self._ready * PAGE, end * PAGE)
            prefault(self._memory, self._ready * PAGE, end * PAGE)
        self._ready = end

    def missing(self, runs: Runs) -> Runs:
        """Return the pages of ``runs`` that are not held."""
        return self._divide(runs)[1]

    def _divide(self, runs: Runs) -> tuple[list[PageRun], Runs]:
        """The pages of ``runs`` that are held, with their places, and those that are not."""
        if not self.places:
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
        if self._descriptor >= 0:
            self.prefault(count_pages(new))  # more than was expected
        places = [self._used + at for at in in_order(new)]
        # Noted only once they are there: a failed copy keeps the pages held before.
        ram.read_to(
            [*((run.first, run.count) for run in held), *new],
            self._data,
            [*(run.at for run in held), *places],
        )
        if new:
            placed = [PageRun(*run, 0, at) for run, at in zip(new, places, strict=True)]
            self._used += count_pages(new)
            self.places = overlay_runs(placed, self.places) if self.places else placed
            self._map = RunMap(self.places)
        return more

    def close(self) -> None:
        """See `HeldPages.close`."""
        super().close()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


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
