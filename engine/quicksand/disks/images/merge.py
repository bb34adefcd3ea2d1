"""Merges qcow2 layers into one file, without QEMU."""

from __future__ import annotations

import contextlib
import itertools
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from quicksand.base.errors import ConfigError
from quicksand.disks.diff.layer import COMPRESSED, ZERO
from quicksand.disks.images.overlay import CLUSTER
from quicksand.disks.images.qcow2 import VIRTUAL_SIZE_MAX
from quicksand.disks.images.visible import MIXED, NOTHING, Part, Visible, open_visible
from quicksand.disks.images.writer import Qcow2Writer, new_file

PIECE_CLUSTERS = 64
"""Clusters that are read and written in one step: 4 MiB."""

DEFLATE_WINDOW = -12
"""As in QEMU (block/qcow2-threads.c): raw deflate with a window of 4 KiB."""

DEFLATE_MEMORY = 9
THREADS_MAX = 8
_ZEROS = bytes(CLUSTER)

Progress = Callable[[int, int], None]
"""Called with the bytes done and the total."""

Store = Callable[[memoryview], list[int]]
"""Writes whole clusters and returns their table entries."""


def write_merged(
    layers: Sequence[Path],
    target: Path,
    *,
    backing: Path | None,
    base: Sequence[Path] = (),
    size: int | None = None,
    compress: bool = False,
    hide_base: bool = False,
    progress: Progress | None = None,
) -> None:
    """Merge ``layers``, the lowest first, into one layer above their base.

    ``backing`` is the name of the base in the header; without it and ``base`` the result is a
    complete disk. ``base`` lists the base's own files: they are read only where a layer covers part
    of a 64 KiB cluster (because its clusters are smaller, or it ends there), and zeros beyond their
    end are not stored. ``size`` is in bytes; beyond the highest layer it adds zeros. ``hide_base``
    makes the disk read as zeros wherever no layer has data.

    ``target`` appears, or is replaced, only when it is whole; a failure leaves nothing else.
    Raises ImageError naming a damaged layer, or if ``base`` is missing and needed, ConfigError,
    DiskSpaceError, PathError.
    """
    if not layers:
        raise ConfigError("there are no layers to merge")
    if size is not None and not 0 < size <= VIRTUAL_SIZE_MAX:
        raise ConfigError(f"a disk of {size} bytes is not possible")
    known = None if backing is not None and not base and not hide_base else base
    nothing = ZERO if hide_base else NOTHING
    with open_visible(layers, known, size=size) as disk:
        total = disk.filled() * CLUSTER
        with new_file(target) as descriptor:
            out = Qcow2Writer(descriptor, target, size=disk.size, backing=backing)
            with _deflating(out) if compress else contextlib.nullcontext(out.add_clusters) as store:
                done = 0
                for part in disk.parts():
                    table = [ZERO if entry == ZERO else nothing for entry in part.entries]
                    for at, data in _pieces(disk, part):
                        entries = _store(data, store)
                        table[at : at + len(entries)] = entries
                        done += len(data)
                        if progress is not None:
                            progress(done, total)
                    out.add_table(part.number, table)
                if hide_base:
                    out.add_missing_tables(ZERO)
            out.finish()


def _pieces(disk: Visible, part: Part) -> Iterator[tuple[int, bytes]]:
    """Read the clusters of ``part`` that layers hold: (number in the part, content from there)."""
    at = 0
    while at < len(part.entries):
        if part.entries[at] in (NOTHING, ZERO):
            at += 1
            continue
        data = _read(disk, part, at)
        yield at, data
        at += len(data) // CLUSTER


def _read(disk: Visible, part: Part, at: int) -> bytes:
    """Read cluster ``at`` of the part, with the next ones if they follow it in its file."""
    place, owner = part.entries[at], part.owners[at]
    if place == MIXED or place & COMPRESSED or owner is None:
        return disk.read(part.start + at * CLUSTER)
    count = 1
    for number in range(at + 1, min(at + PIECE_CLUSTERS, len(part.entries))):
        if part.owners[number] is not owner or part.entries[number] != place + count * CLUSTER:
            break
        count += 1
    return owner.read_run(place, count)


def _store(data: bytes, store: Store) -> list[int]:
    """Write clusters except those of zeros, and return the entries of all."""
    entries: list[int] = []
    view = memoryview(data)
    for is_zero, run in itertools.groupby(
        range(0, len(data), CLUSTER), lambda start: data.startswith(_ZEROS, start)
    ):
        starts = list(run)
        if is_zero:
            entries += [ZERO] * len(starts)
        else:
            entries += store(view[starts[0] : starts[-1] + CLUSTER])
    return entries


@contextlib.contextmanager
def _deflating(out: Qcow2Writer) -> Iterator[Store]:
    with ThreadPoolExecutor(min(THREADS_MAX, os.cpu_count() or 1)) as pool:

        def store(data: memoryview) -> list[int]:
            clusters = [data[at : at + CLUSTER] for at in range(0, len(data), CLUSTER)]
            entries: list[int] = []
            for cluster, packed in zip(clusters, pool.map(_deflate, clusters), strict=True):
                if len(packed) < CLUSTER:
                    entries.append(out.add_compressed(packed))
                else:
                    entries += out.add_clusters(cluster)
            return entries

        yield store


def _deflate(cluster: memoryview) -> bytes:
    packer = zlib.compressobj(
        zlib.Z_DEFAULT_COMPRESSION, zlib.DEFLATED, DEFLATE_WINDOW, DEFLATE_MEMORY
    )
    return packer.compress(cluster) + packer.flush()
