"""The differences between two disks of a sandbox, with the lines of small texts, and as a patch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from quicksand.disks.diff.changes import FileChange
from quicksand.disks.diff.guest_packages import PackageChange, package_changes
from quicksand.disks.diff.patch import FILE_MAX, Patch, make_patch
from quicksand.disks.diff.versions import TEXT_MAX, FileVersions, VersionReader, count_lines
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.changed_files import Both, Pair, with_both

REPORT_EVERY = 2_000
"""Steps of reading between two reports of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The changes between two disks."""

    before: str
    """The earlier disk in words."""
    after: str
    changes: Sequence[FileChange]
    """Sorted by path."""
    lines: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Path -> lines added and removed, of small texts."""
    packages: Mapping[str, Sequence[PackageChange]] = field(default_factory=dict)
    """Path of a changed database of dpkg or apk -> the packages that differ, sorted by name."""
    read: float
    """Unix time at which reading began: the present disk is not newer."""
    is_live: bool = False
    """Whether the disk of a running sandbox was read: its guest may have written on."""
    is_synced: bool = False
    """Whether its guest was asked just before to write all its unwritten data."""


class Meter:
    """Counts steps of reading, and reports now and then."""

    def __init__(self, report: Callable[[int], None]) -> None:
        self._report = report
        self._steps = 0

    def step(self) -> None:
        self._steps += 1
        if self._steps % REPORT_EVERY == 0:
            self._report(self._steps)


def ignore(steps: int) -> None:
    """Does nothing."""


async def compare_disks(
    registry: Registry,
    record: Record,
    pair: Pair,
    *,
    lines: bool,
    is_synced: bool,
    report: Callable[[int], None] = ignore,
) -> Difference:
    """Find what differs; with ``lines`` small texts are compared line by line, and databases of
    packages are read. ``report`` gets the steps done, on another thread. Raises as `with_both`."""
    entry = registry.inspect(record.id)
    is_live = pair.has_present and entry is not None and entry.is_live
    began = time.time()

    def work(both: Both) -> Difference:
        changes = both.changes()
        reader = VersionReader(*both.filesystems)
        counted = count_lines(reader, changes, both.check) if lines else ()
        packages = package_changes(reader, changes, both.check) if lines else ()
        return Difference(
            before=both.names[0],
            after=both.names[1],
            changes=tuple(changes),
            lines=dict(counted),
            packages=dict(packages),
            read=began,
            is_live=is_live,
            is_synced=is_live and is_synced,
        )

    return await with_both(registry, record, pair, work, step=Meter(report).step)


async def read_file(registry: Registry, record: Record, pair: Pair, path: str) -> FileVersions:
    """Read both disks' versions of a path, with files of at most TEXT_MAX bytes. Raises as
    `with_both`."""
    return await with_both(
        registry,
        record,
        pair,
        lambda both: VersionReader(*both.filesystems).read(path, most=TEXT_MAX),
    )


async def write_patch(
    registry: Registry,
    record: Record,
    pair: Pair,
    *,
    below: str = "/",
    report: Callable[[int], None] = ignore,
) -> Patch:
    """Write the differences as a patch, at or ``below`` a path only. Raises as `with_both`."""
    inside = below.rstrip("/") + "/"

    def work(both: Both) -> Patch:
        changed = [
            change.path
            for change in both.changes()
            if change.path.startswith(inside) or change.path == below
        ]
        reader = VersionReader(*both.filesystems)
        files = (reader.read(path, most=FILE_MAX) for path in changed)
        return make_patch(files, both.check)

    return await with_both(registry, record, pair, work, step=Meter(report).step)
