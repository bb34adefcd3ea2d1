"""Layers of disks, begun and merged by `quicksand_disks`, with the engine's errors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from quicksand_disks import qcow2

from quicksand.base.files import map_os_errors
from quicksand.disks.images.disk_headers import disk_errors


def create_overlay(path: Path, *, backing: Path | None, size: int) -> None:
    """Write an empty overlay of ``size`` bytes over ``backing``; with None, a disk of zeros.

    The name of the backing file is for people and tools: the engine gives QEMU the block graph
    explicitly. Raises ConfigError for an impossible size, DiskSpaceError, PathError.
    """
    with _writing(path):
        qcow2.create_overlay(path, backing=backing, size=size)


def write_merged(
    layers: Sequence[Path],
    target: Path,
    *,
    backing: Path | None,
    base: Sequence[Path] = (),
    size: int | None = None,
    compress: bool = False,
    hide_base: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Merge ``layers`` into one, as `qcow2.write_merged` does. Raises ImageError naming a damaged
    layer, or if ``base`` is missing and needed, ConfigError, DiskSpaceError, PathError."""
    with _writing(target):
        qcow2.write_merged(
            layers,
            target,
            backing=backing,
            base=base,
            size=size,
            compress=compress,
            hide_base=hide_base,
            progress=progress,
        )


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn errors of `quicksand_disks` into the engine's, that ``path`` cannot be written included.
    An OSError that does not name it is of a function of the caller's."""
    try:
        with disk_errors():
            yield
    except OSError as error:
        if error.filename != os.fspath(path):
            raise
        with map_os_errors(path):
            raise
