"""Complete memory images: a sparse file of the memory's size, every page that is not all zeros at
its own address. QEMU maps one privately (``memory-backend-file``, share=off), so that all machines
that go on from it share its pages until they write to them, and nothing is copied at a start.

Which pages of a checkpoint are the image's own its index says by runs that point into the image
itself, to the page's own address.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand.errors import HistoryError
from quicksand.host.files import data_extents, map_os_errors
from quicksand.host.sharing import copy_range, share_blocks, write_at
from quicksand.snapshots.guest_ram import PAGE
from quicksand.snapshots.pages import CHUNK, ZEROS, Run, checksums, overlay_runs, seal
from quicksand.snapshots.records import File
from quicksand.snapshots.verified import Verified

OVER_MIN = 64 * 1024 * 1024
"""Bytes over an image below which a new one is not worth its file: a restore writes them in some
hundredths of a second."""

_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE (linux/falloc.h)


def not_of_image(runs: Sequence[Run], image: int) -> list[Run]:
    """Those of ``runs`` that are to be put over the image, which is the file of that number."""
    return [run for run in runs if run.file != image or run.at != run.first]


def own_pages(runs: Sequence[tuple[int, int]], image: int) -> list[Run]:
    """Runs that say of these pages that they are as in the image."""
    return [Run(first, count, image, first) for first, count in runs]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a complete image would be made of."""

    runs: list[Run]
    """Ascending; pages that none of them has are zeros."""
    base: int
    """The file's number in ``runs`` that stands for the image that this one is made from."""
    over: int
    """Bytes that lie over that one, zeros not counted."""
    size: int
    """Bytes with data in the new image, at most."""

    @classmethod
    def make(cls, runs: Sequence[Run], base: int, extents: Sequence[tuple[int, int]]) -> Plan:
        """For the pages ``runs`` over a base that has data at ``extents`` (bytes)."""
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
        """Whether to write it, ``stored`` being the bytes of pages that this run's checkpoints have
        stored since their last image, those of this one included.

        What is over the image is written to memory by each restore and is each clone's own: it
        should not be much (OVER_MIN), nor most of the memory. And the image costs no more than four
        times of what this very run has written before it: so the sum of all images stays
        proportional to what was written, in whatever tree of checkpoints and reverts.
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
    """Write a new image of ``size`` bytes and return what identifies it; note it as ``verified``.

    ``sources``: the bytes of the files that the plan's runs number, but for the base.
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
    """What identifies an image that somebody else has written, QEMU for one. Syncs it, and notes it
    as ``verified``.

    Raises PathError, DiskSpaceError.
    """
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return _seal(path.name, descriptor, {}, verified)
        finally:
            os.close(descriptor)


def identify_image(path: Path) -> File:
    """What identifies an image as it is now. Raises PathError."""
    with map_os_errors(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _identify(path.name, descriptor, {})
        finally:
            os.close(descriptor)


def image_extents(path: Path) -> list[tuple[int, int]]:
    """Where an image has data. Raises HistoryError."""
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
    file = _identify(name, descriptor, known)
    if verified is not None:
        verified.add(verified.mark(descriptor, file))
    return file


def _identify(name: str, descriptor: int, known: dict[int, int]) -> File:
    size = os.fstat(descriptor).st_size
    crcs = checksums(descriptor, size, data_extents(descriptor, size), known)
    return File(name=name, size=size, crcs=tuple(crcs))


def _untouched(plan: Plan, base: File) -> dict[int, int]:
    """Checksums of the chunks that are as in the base. A base that rots while it is copied is found
    out by them, too."""
    touched = {
        chunk
        for run in plan.runs
        if run.file != plan.base
        for chunk in range(run.first * PAGE // CHUNK, (run.end * PAGE - 1) // CHUNK + 1)
    }
    return {number: crc for number, crc in enumerate(base.crcs) if number not in touched}


def _copy_base(target: int, base: Path, plan: Plan) -> None:
    """Have the base's pages in the new image: by sharing its blocks where the file system can."""
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
