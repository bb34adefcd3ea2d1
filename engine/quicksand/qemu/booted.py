"""The cached boot files that machines of sandboxes use."""

from __future__ import annotations

import contextlib
from itertools import pairwise
from pathlib import Path

from quicksand.disks.images.boot_files import start_file_of
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import RunState


def booted_files(registry: Registry) -> set[Path]:
    """Return the files of running machines: a revert starts a new QEMU with the same ones. Blocks
    for I/O."""
    used: set[Path] = set()
    for entry in registry.list():
        if entry.run is not None:
            used |= _files_of(entry.run, registry.paths.cache)
    return used


def _files_of(run: RunState, cache: Path) -> set[Path]:
    """Return a machine's files, and the kernel from which a machine that went on would boot."""
    found = set(map(Path, run.qemu_command))
    for option, value in pairwise(run.qemu_command):
        if option == "-kernel":
            with contextlib.suppress(OSError):  # the image is gone, so no file is made from it
                found.add(start_file_of(Path(value), cache))
    return found
