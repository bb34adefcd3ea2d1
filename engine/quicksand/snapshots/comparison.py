"""The differences between the disks of two checkpoints, or of a checkpoint and the sandbox as it is
now, with the lines of small texts, and as a patch."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from quicksand_disks import MalformedError
from quicksand_disks.changes import FileChange
from quicksand_disks.comparing import (
    FILE_MAX,
    TEXT_MAX,
    FileVersions,
    PackageChange,
    Patch,
    VersionReader,
    compare,
    count_lines,
    make_patch,
    package_changes,
)
from quicksand_disks.ext4 import Budget, FileSystem
from quicksand_disks.qcow2 import Chain, Layer, differing

from quicksand.base.errors import HistoryError, ImageError, QuicksandError
from quicksand.base.files import read_json
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end
from quicksand.disks.images.disk_headers import disk_errors
from quicksand.qemu.planning import resolve_image
from quicksand.records.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.nodes import Head, Node
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.snapshots.history import History, history_of

T = TypeVar("T")

LIVE_TRIES = 3
"""Attempts on a running sandbox: its guest may write while the disk is read, and then the parts
that were read do not fit together."""


@dataclass(frozen=True, slots=True)
class DiskFiles:
    """The files of one of the two disks."""

    name: str
    """Its name in messages."""
    paths: tuple[Path, ...]
    """The paths of its layers, the lowest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two disks to compare."""

    a: str
    """A checkpoint, by its tag or id."""
    b: str | None = None
    """The later one; None for the present disk."""
    parent: bool = False
    """Whether ``a`` is the later one and its parent the earlier, which for the first checkpoint is
    the image. ``b`` is then None."""

    @property
    def has_present(self) -> bool:
        return self.b is None and not self.parent


@dataclass(frozen=True, slots=True)
class Both:
    """Both disks, opened."""

    names: tuple[str, str]
    filesystems: tuple[FileSystem, FileSystem]
    chains: tuple[Chain, Chain]
    check: Callable[[], None]
    """To be called now and then; raises when nobody waits for the result any more."""

    def changes(self) -> list[FileChange]:
        """List what changed from the first to the second. Raises MalformedError,
        DiskFileError."""
        return compare(*self.filesystems, differing(*self.chains))


async def diff_disks(
    registry: Registry, record: Record, a: str, b: str | None, *, parent: bool = False
) -> list[FileChange]:
    """List what changed between two disks, as `with_both` reads them."""
    pair = Pair(a=a, b=b, parent=parent)
    return await with_both(registry, record, pair, lambda both: both.changes())


async def with_both(
    registry: Registry,
    record: Record,
    pair: Pair,
    work: Callable[[Both], T],
    *,
    step: Callable[[], None] = lambda: None,
) -> T:
    """Return the result of ``work`` on two disks, in a thread; repeat it if the guest wrote to the
    present disk meanwhile. ``step`` is called there at every step of reading.

    Only reads; the sandbox may be running. Raises CheckpointNotFoundError, ImageError for a damaged
    layer, HistoryError for a file system that cannot be read, HostError.
    """
    entry = registry.inspect(record.id)
    tries = LIVE_TRIES if pair.has_present and entry is not None and entry.is_live else 1
    for left in reversed(range(tries)):
        try:
            return await _once(registry, record, pair, work, step)
        except (HistoryError, ImageError) as error:
            if tries == 1:
                raise
            if left == 0:
                if not error.advice:
                    error.hint = "it was being written to: take a checkpoint first"
                raise
    raise AssertionError


async def _once(
    registry: Registry,
    record: Record,
    pair: Pair,
    work: Callable[[Both], T],
    step: Callable[[], None],
) -> T:
    history = history_of(registry, record.id)
    with contextlib.ExitStack() as stack:

        def open_both() -> tuple[DiskFiles, DiskFiles, dict[Path, Layer]]:
            found = _find_both(registry, record, pair)
            paths = dict.fromkeys(path for files in found for path in files.paths)
            return *found, {path: _open(stack, path) for path in paths}

        # Removing a checkpoint takes this lock; open files stay readable after that.
        async with history.locked():
            files_a, files_b, layers = await in_thread_to_the_end(open_both)

        def read(check: Callable[[], None]) -> T:
            def both_checks() -> None:
                check()
                step()

            return with_files(files_a, files_b, layers, both_checks, work)

        # The thread must end before the files are closed: their descriptors could be reused.
        return await in_stoppable_thread(read)


def _open(stack: contextlib.ExitStack, path: Path) -> Layer:
    with disk_errors():
        layer = Layer(path)
    stack.callback(layer.close)
    return layer


def _find_both(registry: Registry, record: Record, pair: Pair) -> tuple[DiskFiles, DiskFiles]:
    place = sandbox_dir(registry.paths, record.id)
    history = history_of(registry, record.id)
    first = history.find(pair.a)
    second = None if pair.b is None else history.find(pair.b)
    image, _ = resolve_image(registry, record)

    def files(name: str, layers: Sequence[str]) -> DiskFiles:
        return DiskFiles(name, (*image.chain, *(place.layer(layer) for layer in layers)))

    def of_node(node: Node) -> DiskFiles:
        return files(f"the disk of {node.tag!r}", node.layers)

    if pair.parent:
        parent = history.find_visible(first.parent)
        if parent is None:
            return files("the image's disk", ()), of_node(first)
        return of_node(history.get(parent)), of_node(first)
    if second is not None:
        return of_node(first), of_node(second)
    head = _present(registry, place, record.id)
    return of_node(first), files("the present disk", (*head.layers, head.top))


def _present(registry: Registry, place: SandboxDir, id_: str) -> Head:
    """The present disk. If a revert was cut short, the machine that ran last decides."""
    head = History(place).head()
    if head.previous is None:
        return head
    entry = registry.inspect(id_)
    if entry is not None and entry.is_live:
        machine = runtime_dir(registry.paths, id_).current().name
    else:
        machine = ""
        with contextlib.suppress(OSError, ValueError):
            machine = str(read_json(place.exit).get("machine", ""))
    return head if head.machine == machine else head.previous


def with_files(
    a: DiskFiles,
    b: DiskFiles,
    layers: dict[Path, Layer],
    check: Callable[[], None],
    work: Callable[[Both], T],
) -> T:
    """Do ``work`` with two disks; ``layers`` holds the open files of both. ``check`` is called at
    every step and may raise.

    Raises HistoryError for a file system that cannot be read, ImageError for a damaged layer.
    """
    chain_a, chain_b = (_chain(files, layers) for files in (a, b))
    filesystem_a = _open_filesystem(a, chain_a, check)
    filesystem_b = _open_filesystem(b, chain_b, check)
    both = Both((a.name, b.name), (filesystem_a, filesystem_b), (chain_a, chain_b), check)
    try:
        with disk_errors():
            return work(both)
    except (MalformedError, struct.error) as error:
        raise _unreadable(f"{a.name} and {b.name} cannot be compared", (a, b), error) from error


def _chain(files: DiskFiles, layers: dict[Path, Layer]) -> Chain:
    return Chain([layers[path] for path in files.paths])


def _open_filesystem(files: DiskFiles, chain: Chain, check: Callable[[], None]) -> FileSystem:
    try:
        with disk_errors():
            return FileSystem(chain, Budget(check=check))
    except (MalformedError, struct.error) as error:
        raise _unreadable(f"{files.name} cannot be read", (files,), error) from error


def _unreadable(what: str, disks: Sequence[DiskFiles], error: Exception) -> QuicksandError:
    where = " and ".join(dict.fromkeys(str(files.paths[-1]) for files in disks))
    return HistoryError(f"{what}: {error} ({where})")


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
