"""QEMU and keeper processes whose sandbox is gone, whatever data directory it was in."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.processes import (
    PROC,
    Process,
    ProcessKind,
    holders_of,
    is_same_place,
    list_processes,
)


def find_orphans() -> list[Process]:
    """Return the QEMU and keeper processes of this user whose sandbox's directory is gone or was
    replaced. They are recognised by its lock, which the processes of a sandbox hold while they
    live. Blocks for I/O."""
    found = list_processes()
    holders = {of: set(holders_of(Path(of) / "lock")) for of in {process.of for process in found}}
    can_tell = PROC.is_dir()
    return [
        process
        for process in found
        if (process.pid not in holders[process.of] if can_tell else not Path(process.of).exists())
        and process.is_there
        and _sees_what_we_see(process)
    ]


def _sees_what_we_see(process: Process) -> bool:
    """Whether a path means the same to that process: it is not in a container or a chroot."""
    with contextlib.suppress(OSError):
        its, ours = PROC / str(process.pid), PROC / "self"
        same_root = os.path.samestat((its / "root").stat(), (ours / "root").stat())
        return same_root and (its / "ns/mnt").readlink() == (ours / "ns/mnt").readlink()
    return not PROC.is_dir()


def find_unkept() -> list[Process]:
    """QEMUs whose keeper was killed; the next command on their sandbox starts a new one. Blocks for
    I/O."""
    found = list_processes()
    keepers = [process for process in found if process.kind is ProcessKind.KEEPER]
    return [
        process
        for process in found
        if process.kind is ProcessKind.QEMU
        and not any(is_same_place(keeper.of, process.of) for keeper in keepers)
        and process.is_there
    ]


def end_orphans(orphans: Sequence[Process]) -> int:
    """Kill those of ``orphans`` that are still orphans; returns how many. Blocks for I/O."""
    ended = [process for process in find_orphans() if process in orphans]
    for process in ended:
        process.send(signal.SIGKILL)
    return len(ended)
