"""Finds Ray's processes on this machine. Reads below /proc."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from quicksand.extending import PROC, start_of

from quicksand_fleet.over_ray.cluster_record import MARK, ClusterRecord


def processes_of_cluster(
    record: ClusterRecord, *, having: Mapping[str, str] | None = None
) -> list[tuple[int, str]]:
    """Return the processes of a cluster on this machine: process id and start time. These are
    processes that have its mark in their environment or write to files in its directory (those that
    change their title lose their environment), and their children. ``having``: only processes with
    these variables, which is the raylet of one machine, and their children."""
    own = list(_own())
    wanted = {f"{MARK}={record.id}".encode()}
    if having is not None:
        wanted |= {os.fsencode(f"{name}={value}") for name, value in having.items()}
    found = {
        pid
        for pid, _, _ in own
        if wanted <= _environment(pid) or (having is None and _writes_to(pid, record.directory))
    }
    while more := {pid for pid, parent, _ in own if parent in found and pid not in found}:
        found |= more
    return [(pid, started) for pid, _, started in own if pid in found]


def _own() -> Iterator[tuple[int, int, str]]:
    """Yield this user's processes except this one: process id, parent, start time."""
    for entry in os.scandir(PROC):
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError, ValueError):
                if entry.stat().st_uid == os.getuid() and (started := start_of(int(entry.name))):
                    yield int(entry.name), parent_of(int(entry.name)), started


def parent_of(pid: int) -> int:
    """Return the parent of a process (proc_pid_stat(5)). Raises OSError if the process has
    ended."""
    text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    return int(text.rpartition(")")[2].split()[1])


def _environment(pid: int) -> set[bytes]:
    try:
        return {*(PROC / str(pid) / "environ").read_bytes().split(b"\0")}
    except OSError:
        return set()


def _writes_to(pid: int, directory: Path) -> bool:
    for descriptor in ("1", "2"):
        with contextlib.suppress(OSError):
            if (PROC / str(pid) / "fd" / descriptor).readlink().is_relative_to(directory):
                return True
    return False
