"""Removes the QEMUs that an installation or a setup has unpacked into the user's data directory."""

from __future__ import annotations

import re
from pathlib import Path

from packaging.specifiers import SpecifierSet

from quicksand.base.errors import QemuNotFound, StateError
from quicksand.base.files import map_os_errors, sync_dir
from quicksand.base.paths import Paths
from quicksand.base.processes import list_processes, program_of
from quicksand.base.staging import staging
from quicksand.qemu.binaries import copies
from quicksand.qemu.provision import UNFINISHED

_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)*")


def unpacked_versions(paths: Paths) -> list[str]:
    """List the QEMUs that are unpacked, by the names of their directories, the newest first. Blocks
    for I/O."""
    return [root.name for root in copies(paths)]


def uninstall_qemu(paths: Paths, versions: SpecifierSet) -> list[str]:
    """Remove these of the unpacked QEMUs; return their names in `unpacked_versions`. A QEMU of the
    system, or of a package in a Python environment, stays. Blocks for I/O.

    Raises QemuNotFound if there is none, StateError naming one that runs, before anything is
    removed; DiskSpaceError, PathError.
    """
    doomed = [root for root in copies(paths) if _is_one_of(root.name, versions)]
    if not doomed:
        there = ", ".join(unpacked_versions(paths))
        raise QemuNotFound(
            f"no QEMU{versions} is installed here",
            hint=f"installed are {there}" if there else "that of the system is not ours to remove",
        )
    programs = [Path(program_of(process.pid)) for process in list_processes()]
    for root in doomed:
        if users := sum(program.is_relative_to(root.resolve()) for program in programs):
            raise StateError(
                f"the QEMU in {root} runs: {users} of our processes use it",
                hint="stop the sandboxes, and end orders of spares, first",
            )
    place = doomed[0].parent
    with staging(place, prefix=UNFINISHED) as made:
        for root in doomed:
            with map_os_errors(root):
                root.rename(made / root.name)
        sync_dir(place)
    return [root.name for root in doomed]


def _is_one_of(name: str, versions: SpecifierSet) -> bool:
    number = _NUMBER.match(name)
    return not versions or (number is not None and versions.contains(number[0], prereleases=True))
