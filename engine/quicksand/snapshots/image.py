"""Complete memory images: sparse files of the memory's size with every page that is not all zeros
at its own address. QEMU maps one privately (``memory-backend-file``, share=off), so all machines
that continue from it share its pages until they write to them, and a start copies nothing.

A checkpoint's index refers to pages of the image by runs whose place in the file is the page's own
address.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from quicksand.base.checksum import crc32
from quicksand.base.errors import HistoryError
from quicksand.base.files import data_extents, map_os_errors
from quicksand.base.regular import open_regular
from quicksand.base.sharing import share_blocks
from quicksand.records.nodes import File
from quicksand.snapshots.differences import Comparer, address_of, stretches
from quicksand.snapshots.guest_ram import PAGE, Runs, count_pages, join_runs
from quicksand.snapshots.pages import (
    CHUNK,
    TICK_NS,
    ZEROS,
    PageRun,
    RunMap,
    checksums,
    crc_of_zeros,
    overlay_runs,
    read_all,
    seal,
)
from quicksand.snapshots.stepwise import StepWriter
from quicksand.snapshots.verified import Verified

OVER_MIN = 64 * 1024 * 1024
"""A new image is not worth its file while fewer bytes than this lie over the old one: a restore
writes them within some hundredths of a second."""

BRIDGE = 16
"""The least pages of zeros between two stretches of data that are skipped: fewer are written, which
takes less time than another write."""

_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE (linux/falloc.h)


def not_of_image(runs: Sequence[PageRun], image: int) -> list[PageRun]:
    """Return the pages of ``runs`` that differ from the memory image, file number ``image``."""
    return [run for run in runs if run.file != image or run.at != run.first]


def own_pages(runs: Sequence[tuple[int, int]], image: int) -> list[PageRun]:
    """Runs for pages that are as in the memory image, file number ``image``."""
    return [PageRun(first, count, image, first) for first, count in runs]


@dataclass(frozen=True, slots=True)
class Plan:
    """The sources of a new complete image, besides the pages that are copied from the guest."""

    runs: list[PageRun]
    """Ascending; all other pages are zeros. The guest's pages count as zeros."""
    base: int
    """The file number in ``runs`` of the present image, from which the new one is made."""
    over: int
    """Bytes of pages that differ from the present image, without zeros."""
    size: int
    """The most bytes of data in the new image."""

    @classmethod
    def make(cls, runs: Sequence[PageRun], base: int, extents: Sequence[tuple[int, int]]) -> Plan:
        """A plan for the pages ``runs`` over a base that has data at ``extents`` (bytes)."""
        over = not_of_image(runs, base)
        pages, end = [], 0
        for start, stop in extents:
            # Blocks of a file system may be smaller than a page.
            first, end = max(start // PAGE, end), max(-(-stop // PAGE), end)
            if end > first:
                pages.append((first, end - first))
        every = overlay_runs(over, own_pages(pages, base))
        return cls(every, base, over=count_bytes(over), size=count_bytes(every))

    def pays(self, *, over: int, data: int, stored: int) -> bool:
        """Whether to write the image with the guest's pages, of which ``data`` bytes are no zeros
        and ``over`` bytes also differ from the present image. ``stored``: bytes of pages that the
        checkpoints of this run of QEMU, including this one, have stored since their last image.

        Each restore writes the pages over the image to memory, and each clone has its own copy of
        them, so they should be few (OVER_MIN) and less than half of the memory. An image may cost
        at most four times the bytes that this run has stored before it: then the sum of all images
        stays proportional to the bytes written, whatever the tree of checkpoints and reverts.
        """
        over, size = self.over + over, self.size + data
        return over > OVER_MIN and 2 * over > size and 4 * stored > size


def can_pay(*, over: int, stored: int) -> bool:
    """Whether a plan can pay with at most so many bytes over the present image and so many stored
    (see `Plan.pays`). This question takes much less time than making the plan."""
    return over > OVER_MIN and 4 * stored > OVER_MIN


def count_bytes(runs: Sequence[PageRun]) -> int:
    """Bytes of the pages that are not zeros."""
    return sum(run.count for run in runs if run.file != ZEROS) * PAGE


class PageSource(Protocol):
    """A source from which the guest's pages are copied. Raises MachineError."""

    def read(self, runs: Runs, into: memoryview) -> None:
        """Copy the pages of ``runs``, in order, to ``into``."""

    def read_in_place(self, runs: Runs, into: memoryview, start: int) -> None:
        """Copy the pages of ``runs`` to ``into``, the place of the pages from ``start`` on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The sources of a new image."""

    plan: Plan
    files: Sequence[memoryview]
    """The contents of the files in the plan's runs, by number, except for the base."""
    guest: Runs
    """The pages that are copied from the guest."""
    source: PageSource
    base: tuple[Path, File] | None
    """The present image."""
    is_read_soon: bool = False
    """Whether the new image is better kept in the page cache."""


def write_image(
    path: Path,
    size: int,
    content: Content,
    verified: Verified | None = None,
    check: Callable[[], None] = lambda: None,
) -> File:
    """Write a new image of ``size`` bytes, add it to ``verified`` and return its checksums.
    ``check`` is called now and then, and may raise.

    Raises DiskSpaceError, PathError, MachineError; nothing is left then.
    """
    steps = StepWriter(path, cached=content.is_read_soon)
    try:
        with map_os_errors(path):
            os.ftruncate(steps.descriptor, size)
        with _Filling(steps, content) as filling:
            crcs = []
            for start in range(0, size, CHUNK):
                check()
                with map_os_errors(path):
                    crcs.append(filling.write(start, min(CHUNK, size - start)))
            return steps.seal(crcs, verified)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        steps.close()


class _Filling:
    """Fills the steps of a new image."""

    def __init__(self, steps: StepWriter, content: Content) -> None:
        self._steps = steps
        self._content = content
        self._compare = Comparer()
        self._plan = RunMap(content.plan.runs)
        self._guest = RunMap(own_pages(content.guest, 0))
        self._source: int | None = None
        """The base's descriptor."""
        self._shared = False
        """Whether the new image shares the base's blocks already (FICLONE, ioctl_ficlone(2))."""

    def __enter__(self) -> _Filling:
        if self._content.base is not None:
            path, _ = self._content.base
            with map_os_errors(path):
                self._source = open_regular(path)
            self._shared = share_blocks(self._steps.descriptor, self._source)
        return self

    def __exit__(self, *_: object) -> None:
        if self._source is not None:
            os.close(self._source)

    def write(self, offset: int, length: int) -> int:
        """Write ``length`` bytes at ``offset``; returns their checksum."""
        first, end = offset // PAGE, (offset + length) // PAGE
        planned = list(self._plan.within(first, end))
        guest = [(run.first, run.count) for run in self._guest.within(first, end)]
        base = self._content.plan.base
        changed = join_runs((run.first, run.count) for run in planned if run.file != base)
        if not changed and (self._shared or not planned):
            return self._crc_of_base(offset, length)
        with memoryview(self._steps.buffer) as whole, whole[:length] as data:
            if count_pages(guest) < end - first:
                ctypes.memset(address_of(data), 0, length)
            for run in planned:
                self._fill(run, data[(run.first - first) * PAGE : (run.end - first) * PAGE])
            self._content.source.read_in_place(guest, data, first)
            # Taken from the base's record, a checksum also exposes a base that is damaged.
            crc = crc32(data) if changed else self._crc_of_base(offset, length)
            parts = changed if self._shared else [(first, end - first)]
            ranges = self._find_ranges(parts, first, data)
        self._steps.write(offset, ranges)
        return crc

    def _fill(self, run: PageRun, into: memoryview) -> None:
        """Copy pages that are on disk."""
        if run.file == self._content.plan.base:
            assert self._source is not None
            read_all(self._source, into, run.first * PAGE)
        elif run.file != ZEROS:
            # Other threads run meanwhile, also while the disk is read.
            there = address_of(self._content.files[run.file]) + run.at * PAGE
            ctypes.memmove(address_of(into), there, run.count * PAGE)

    def _crc_of_base(self, offset: int, length: int) -> int:
        if self._content.base is None:
            return crc_of_zeros(length)
        return self._content.base[1].crcs[offset // CHUNK]

    def _find_ranges(self, parts: Runs, first: int, data: memoryview) -> list[tuple[int, int]]:
        """Return the ranges to write of a step, as (start, end) in bytes: those of its pages from
        ``first`` on that are in ``parts``. Long stretches of zeros become holes."""
        is_zero = self._compare.find_zeros(address_of(data), data.nbytes // PAGE)
        found: list[tuple[int, int]] = []
        for page, count in parts:
            at = page - first
            for number, pages, zero in stretches(is_zero[at : at + count]):
                start, end = (at + number) * PAGE, (at + number + pages) * PAGE
                if zero and self._shared:
                    _punch_hole(self._steps.descriptor, first * PAGE + start, end - start)
                elif not zero and found and start - found[-1][1] < BRIDGE * PAGE:
                    found[-1] = (found[-1][0], end)
                elif not zero:
                    found.append((start, end))
        return found


def seal_image(path: Path, verified: Verified | None = None) -> File:
    """Sync a file that another program such as QEMU has written, add it to ``verified`` and return
    its checksums. A file with several hard links is not changed, not even its modification time,
    which identifies a save: it belongs to a save or another sandbox, too.

    Raises PathError, DiskSpaceError.
    """
    with map_os_errors(path):
        descriptor = open_regular(path, os.O_RDWR)
        try:
            found = os.fstat(descriptor)
            if found.st_nlink == 1:
                return _seal(path.name, descriptor, verified)
            os.fsync(descriptor)
            # A file that has just been written may change without a later time.
            if time.time_ns() - found.st_mtime_ns <= TICK_NS:
                verified = None
            return _identify_as(path.name, descriptor, verified)
        finally:
            os.close(descriptor)


def identify_image(path: Path) -> File:
    """The checksums of an image as it is now. Raises PathError."""
    with map_os_errors(path):
        descriptor = open_regular(path)
        try:
            return _identify(path.name, descriptor)
        finally:
            os.close(descriptor)


def image_extents(path: Path) -> list[tuple[int, int]]:
    """The ranges of an image that hold data: (start, end) in bytes. Raises HistoryError."""
    try:
        descriptor = open_regular(path)
        try:
            return list(data_extents(descriptor, os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}") from error


def _seal(name: str, descriptor: int, verified: Verified | None) -> File:
    seal(descriptor)
    return _identify_as(name, descriptor, verified)


def _identify_as(name: str, descriptor: int, verified: Verified | None) -> File:
    """The checksums of an open file, which is added to ``verified``."""
    file = _identify(name, descriptor)
    if verified is not None:
        verified.add(verified.mark(descriptor, file))
    return file


def _identify(name: str, descriptor: int) -> File:
    size = os.fstat(descriptor).st_size
    crcs = checksums(descriptor, size, data_extents(descriptor, size))
    return File(name=name, size=size, crcs=tuple(crcs))


def _punch_hole(descriptor: int, offset: int, length: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if call(descriptor, _PUNCH_HOLE, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
