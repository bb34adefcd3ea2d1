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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import HistoryError
from quicksand.host.files import data_extents, map_os_errors
from quicksand.host.sharing import copy_range, share_blocks, write_at
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import CHUNK, TICK_NS, ZEROS, Run, checksums, overlay_runs, seal
from quicksand.snapshots.records import File
from quicksand.snapshots.verified import Verified

OVER_MIN = 64 * 1024 * 1024
"""A new image is not worth its file while fewer bytes than this lie over the old one: a restore
writes them within some hundredths of a second."""

_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE (linux/falloc.h)


def not_of_image(runs: Sequence[Run], image: int) -> list[Run]:
    """Those of ``runs`` whose pages are not as in the memory image, file number ``image``."""
    return [run for run in runs if run.file != image or run.at != run.first]


def own_pages(runs: Sequence[tuple[int, int]], image: int) -> list[Run]:
    """Runs which say that these pages are as in the memory image, file number ``image``."""
    return [Run(first, count, image, first) for first, count in runs]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new complete image would be made of."""

    runs: list[Run]
    """Ascending; pages that are in none of them are zeros."""
    base: int
    """The file number in ``runs`` of the present image, from which the new one is made."""
    over: int
    """Bytes of pages that differ from the present image, without zeros."""
    size: int
    """Bytes of data in the new image, at most."""

    @classmethod
    def make(cls, runs: Sequence[Run], base: int, extents: Sequence[tuple[int, int]]) -> Plan:
        """A plan for the pages ``runs`` over a base that has data at ``extents`` (bytes)."""
        over = not_of_image(runs, base)
        pages, end = [], 0
        for start, stop in extents:
            # Blocks of a file system may be smaller than a page.
            first, end = max(start // PAGE, end), max(-(-stop // PAGE), end)
            if end > first:
                pages.append((first, end - first))
        every = overlay_runs(over, own_pages(pages, base))
        return cls(every, base, over=_bytes(over), size=_bytes(every))

    def pays(self, stored: int) -> bool:
        """Whether to write the image. ``stored``: bytes of pages that the checkpoints of this run
        of QEMU, including this one, have stored since their last image.

        Each restore writes the pages over the image to memory, and each clone has its own copy of
        them, so they should be few (OVER_MIN) and less than half of the memory. An image may cost
        at most four times what this run has stored before it: then the sum of all images stays
        proportional to what was written, whatever the tree of checkpoints and reverts.
        """
        return self.over > OVER_MIN and 2 * self.over > self.size and 4 * stored > self.size


def _bytes(runs: Sequence[Run]) -> int:
    return sum(run.count for run in runs if run.file != ZEROS) * PAGE


def write_image(
    path: Path,
    size: int,
    plan: Plan,
    sources: Sequence[memoryview],
    base: tuple[Path, File] | None,
    verified: Verified | None = None,
) -> File:
    """Write a new image of ``size`` bytes, add it to ``verified`` and return its checksums.

    ``sources``: the contents of the files that the plan's runs number, except for the base.
    Raises DiskSpaceError, PathError; nothing is left then.
    """
    with map_os_errors(path):
        target = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with map_os_errors(path):
            os.ftruncate(target, size)
            known: dict[int, int] = {}
            if base is not None:
                _copy_base(target, base[0], plan)
                known = _untouched(plan, base[1])
            for run in plan.runs:
                if run.file not in (plan.base, ZEROS):
                    data = sources[run.file][run.at * PAGE : (run.at + run.count) * PAGE]
                    write_at(target, data, run.first * PAGE)
            return _seal(path.name, target, known, verified)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(target)


def seal_image(path: Path, verified: Verified | None = None) -> File:
    """Sync a file that another program such as QEMU has written, add it to ``verified`` and return
    its checksums. Nothing of a file with several hard links is changed, not even its time of
    modification, by which a save is known: it belongs to a save or another sandbox, too.

    Raises PathError, DiskSpaceError.
    """
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            found = os.fstat(descriptor)
            if found.st_nlink == 1:
                return _seal(path.name, descriptor, {}, verified)
            os.fsync(descriptor)
            # A file that has just been written may change without a later time.
            if time.time_ns() - found.st_mtime_ns <= TICK_NS:
                verified = None
            return _identify_as(path.name, descriptor, {}, verified)
        finally:
            os.close(descriptor)


def identify_image(path: Path) -> File:
    """The checksums of an image as it is now. Raises PathError."""
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _identify(path.name, descriptor, {})
        finally:
            os.close(descriptor)


def image_extents(path: Path) -> list[tuple[int, int]]:
    """Where an image has data: (start, end) in bytes. Raises HistoryError."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return list(data_extents(descriptor, os.fstat(descriptor).st_size))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HistoryError(f"{path} cannot be read: {error.strerror}") from error


def _seal(name: str, descriptor: int, known: dict[int, int], verified: Verified | None) -> File:
    seal(descriptor)
    return _identify_as(name, descriptor, known, verified)


def _identify_as(
    name: str, descriptor: int, known: dict[int, int], verified: Verified | None
) -> File:
    """The checksums of an open file, which is added to ``verified``."""
    file = _identify(name, descriptor, known)
    if verified is not None:
        verified.add(verified.mark(descriptor, file))
    return file


def _identify(name: str, descriptor: int, known: dict[int, int]) -> File:
    size = os.fstat(descriptor).st_size
    crcs = checksums(descriptor, size, data_extents(descriptor, size), known)
    return File(name=name, size=size, crcs=tuple(crcs))


def _untouched(plan: Plan, base: File) -> dict[int, int]:
    """Checksums of the chunks that are as in the base. Taken from the base's record, they also
    expose a base that is damaged while it is copied."""
    touched = {
        chunk
        for run in plan.runs
        if run.file != plan.base
        for chunk in range(run.first * PAGE // CHUNK, (run.end * PAGE - 1) // CHUNK + 1)
    }
    return {number: crc for number, crc in enumerate(base.crcs) if number not in touched}


def _copy_base(target: int, base: Path, plan: Plan) -> None:
    """Copy the base's pages to the new image, by sharing its blocks where the file system can
    (FICLONE, ioctl_ficlone(2))."""
    source = os.open(base, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if share_blocks(target, source):
            for run in plan.runs:
                if run.file == ZEROS:
                    _punch_hole(target, run.first * PAGE, run.count * PAGE)
            return
        for run in plan.runs:
            if run.file == plan.base:
                copy_range(target, source, run.first * PAGE, run.end * PAGE)
    finally:
        os.close(source)


def _punch_hole(descriptor: int, offset: int, length: int) -> None:
    call = ctypes.CDLL(None, use_errno=True).fallocate
    call.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if call(descriptor, _PUNCH_HOLE, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
