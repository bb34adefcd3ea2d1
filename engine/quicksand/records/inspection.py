"""Finds out the state of a sandbox, from its files, its locks and its processes only."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

from quicksand.base.files import is_locked, read_json
from quicksand.base.paths import Paths
from quicksand.base.processes import PROC, ProcessKind, holders_of, processes_of
from quicksand.records.config import SandboxConfig
from quicksand.records.dialled import ForwarderFiles, read_dialled
from quicksand.records.last_run import crash_reason
from quicksand.records.layout import MachineDir, RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.leases import lease_file, read_lease
from quicksand.records.oversized import why_oversized
from quicksand.records.sandboxes import Entry, Record, RunState, Status

YOUNG_S = 10.0
"""Seconds after the creation of its directory during which a start counts as still going on."""
DISK_FULL = "the host's disk is full; the sandbox resumes when there is space"


def inspect(paths: Paths, id_: str, known: dict[str, SandboxConfig] | None = None) -> Entry | None:
    """The state of one sandbox; None if it does not exist. ``known`` as for `Record.from_json`."""
    place = sandbox_dir(paths, id_)
    name = id_
    try:
        lock = _look_at_lock(place)
        record = Record.from_json(read_json(place.record), known)
        if record.id != id_:
            raise ValueError(f"bad record: it is of the sandbox {record.id!r}")
        name = record.name
        if isinstance(lock, OSError):
            raise lock
    except FileNotFoundError:
        return None  # not yet, or being removed
    except (OSError, ValueError) as error:
        return Entry(id=id_, name=name, status=Status.BROKEN, record=None, error=str(error))
    if lock:
        return _with_lease(place, _inspect_live(paths, record))
    if not record.committed:
        return None
    reason = crash_reason(place)
    status = Status.CRASHED if reason else Status.STOPPED
    entry = Entry(id=id_, name=record.name, status=status, record=record, error=reason)
    return _with_lease(place, entry)


def _with_lease(place: SandboxDir, entry: Entry) -> Entry:
    """Add what a fleet has written about a sandbox that it keeps. Most have no such file, and to
    look for one costs less than to be told by an exception."""
    if not lease_file(place).exists():
        return entry
    with contextlib.suppress(OSError, ValueError):
        if (lease := read_lease(place)) is not None:
            return replace(entry, epoch=lease.epoch, superseded_by=lease.superseded_by)
    return entry


def _inspect_live(paths: Paths, record: Record) -> Entry:
    runtime = runtime_dir(paths, record.id)
    machine, run = _read_run(runtime)
    status, reason = Status.RUNNING, ""
    if run is None:
        status, reason = _without_state(paths, record)
    elif why := why_oversized(machine):
        # A client that works on it leaves it paused, as if the user had paused it.
        status, reason, run = Status.PAUSED, why, replace(run, paused=True)
    elif machine.disk_full.exists():
        status, reason = Status.PAUSED, DISK_FULL
    elif run.paused:
        status = Status.PAUSED
    found = read_dialled(ForwarderFiles(runtime.root))
    return Entry(
        id=record.id,
        name=record.name,
        status=status,
        record=record,
        run=run,
        dialled=found.forwards,
        error=reason or found.error,
    )


def _read_run(runtime: RuntimeDir) -> tuple[MachineDir, RunState | None]:
    """The machine that runs now, and its state; None if that cannot be read. A revert may put
    another machine in its place, and remove it, while it is read."""
    while True:
        machine = runtime.current()
        with contextlib.suppress(OSError, ValueError):
            return machine, RunState.from_json(read_json(machine.state))
        if runtime.current() == machine:
            return machine, None


def _without_state(paths: Paths, record: Record) -> tuple[Status, str]:
    """The status of a live sandbox without state.json: starting, or unreachable.

    The client that starts a sandbox holds its lock until state.json is written. So if only the
    sandbox's own processes hold the lock, state.json existed and is lost. Only Linux tells who
    holds a lock. As that takes some milliseconds, it is skipped while a start is young."""
    place, runtime = sandbox_dir(paths, record.id), runtime_dir(paths, record.id)
    with contextlib.suppress(FileNotFoundError):
        if time.time() - runtime.root.stat().st_mtime < YOUNG_S:
            return Status.STARTING, ""
    processes = processes_of(place.root)
    if not PROC.is_dir() or not any(process.kind is ProcessKind.QEMU for process in processes):
        return Status.STARTING, ""
    others = set(holders_of(place.lock)) - {process.pid for process in processes}
    if others or runtime.current().state.exists():
        return Status.STARTING, ""
    return Status.UNREACHABLE, (
        f"QEMU runs, but its sockets in {runtime.root} are gone; `kill` ends it"
    )


def _look_at_lock(place: SandboxDir) -> bool | OSError:
    """Whether a process holds the sandbox's lock; the error if it cannot be opened."""
    try:
        return is_locked(place.lock)
    except OSError as error:
        return error
