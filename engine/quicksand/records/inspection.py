"""Finds out the state of a sandbox, from its files, its locks and its processes only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from quicksand.base.error_text import printable, reason_of
from quicksand.base.errors import DiskSpaceError
from quicksand.base.files import is_locked, map_os_errors, read_json, tail, write_json
from quicksand.base.paths import Paths
from quicksand.base.processes import PROC, ProcessKind, holders_of, processes_of
from quicksand.base.regular import open_file, open_regular
from quicksand.records.config import SandboxConfig
from quicksand.records.dialled import ForwarderFiles, read_dialled
from quicksand.records.fleet_files import lease_file, read_lease
from quicksand.records.layout import MachineDir, RuntimeDir, SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.paused import LEFT, is_left, pause_of
from quicksand.records.sandboxes import Entry, Record, RunState
from quicksand.things.status import Status

WORD_MAX = 16


class Held(StrEnum):
    """The work for which a lock is held."""

    START = "starting"
    """Somebody starts the sandbox."""
    RUN = "running"
    """The sandbox was started."""
    WORK = "working"
    """Somebody works on a sandbox that does not run, and goes on not running."""


def say_held(lock: int, held: Held) -> None:
    """Write the work into the file of the lock with the descriptor ``lock``, which the caller
    holds. Does nothing on a full disk."""
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, held.value.encode(), 0)


def why_held(lock: Path) -> Held | None:
    """Return the work for which a held lock is held; None if its file names none. Blocks for
    I/O."""
    with contextlib.suppress(OSError, ValueError), open_file(lock) as file:
        return Held(file.read(WORD_MAX).decode("ascii"))
    return None


NOBODY_TOLD = "it is unknown how it ended: the host went down, or all its processes were killed"
PANIC_MARK = "Kernel panic - not syncing"


def crash_reason(place: SandboxDir) -> str:
    """Return why the last run ended without being asked to; "" if it ended well."""
    try:
        ended = read_json(place.exit)
        panic = find_panic(place)
    except FileNotFoundError:
        # Every run creates logs, and its keeper finally writes exit.json.
        return NOBODY_TOLD if place.qemu_log.exists() else ""
    except (OSError, ValueError) as error:
        return f"how it ended cannot be read: {error}"
    return panic or _how_it_ended(ended)


def write_end(place: SandboxDir, ended: dict[str, Any]) -> None:
    """Write exit.json; on a full disk into the space that the keeper has reserved for it. Raises
    DiskSpaceError, PathError."""
    try:
        write_json(place.exit, ended)
    except DiskSpaceError:
        with map_os_errors(place.exit):
            descriptor = open_regular(place.reserved_exit, os.O_WRONLY | os.O_NOFOLLOW)
            try:
                os.truncate(descriptor, os.write(descriptor, json.dumps(ended).encode()))
            finally:
                os.close(descriptor)
            place.reserved_exit.replace(place.exit)


def _how_it_ended(ended: dict[str, Any]) -> str:
    """Return why QEMU ended, from the keeper's exit.json; "" if it was asked to or was normal."""
    code = ended.get("code")
    if ended.get("asked") or code == 0:
        return ""
    if code is None:
        return "QEMU ended with an unknown status, since its keeper was killed"
    if isinstance(code, int) and code < 0:
        with contextlib.suppress(ValueError):
            return f"QEMU was ended by {signal.Signals(-code).name}"
    return f"QEMU ended with status {code}"


def find_panic(place: SandboxDir) -> str:
    """The guest kernel's panic message on the console, or "" if there is none."""
    log = tail(place.console_log, limit=16 * 1024)
    if PANIC_MARK not in log:
        return ""
    line = log[log.rindex(PANIC_MARK) :].splitlines()[0]
    return printable(line[:200])


YOUNG_S = 10.0
"""Seconds after the creation of its directory during which a start counts as still going on."""


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
        return Entry(id=id_, name=name, status=Status.BROKEN, record=None, error=reason_of(error))
    if lock:
        return _with_lease(place, _inspect_live(paths, record))
    if not record.committed:
        return None
    reason = crash_reason(place)
    status = Status.CRASHED if reason else Status.STOPPED
    entry = Entry(id=id_, name=record.name, status=status, record=record, error=reason)
    return _with_lease(place, entry)


def _with_lease(place: SandboxDir, entry: Entry) -> Entry:
    """Add the fleet's record about a sandbox that it keeps. Most sandboxes have no such file, and
    looking for one costs less than an exception."""
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
    elif _has_lost_sockets(sandbox_dir(paths, record.id), runtime, machine):
        status, reason = Status.UNREACHABLE, _sockets_gone(runtime)
    elif pause := pause_of(machine, paused=run.paused):
        status, reason = Status.PAUSED, pause.why
        # A client that works on it leaves it paused, just as the user does.
        run = replace(run, paused=True) if pause.by_keeper else run
    elif is_left(machine, sandbox_dir(paths, record.id)):
        status, reason = Status.PAUSED, LEFT
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
    """Return the machine that runs now, and its state; None if that cannot be read. Meanwhile a
    revert may put another machine in its place, and remove it."""
    while True:
        machine = runtime.current()
        with contextlib.suppress(OSError, ValueError):
            return machine, RunState.from_json(read_json(machine.state))
        if runtime.current() == machine:
            return machine, None


def _without_state(paths: Paths, record: Record) -> tuple[Status, str]:
    """Return the status of a sandbox with a held lock but without state.json: the holder's work.

    The client that starts a sandbox holds its lock until state.json is written. So if only the
    sandbox's own processes hold the lock, and QEMU is one of them, state.json existed and is lost.
    Only Linux tells who holds a lock. As that takes some milliseconds, it is skipped while a start
    is young."""
    place, runtime = sandbox_dir(paths, record.id), runtime_dir(paths, record.id)
    held = why_held(place.lock)
    if held is Held.WORK:
        reason = crash_reason(place)
        return (Status.CRASHED if reason else Status.STOPPED), reason
    ended = Status.STOPPING if held is Held.RUN else Status.STARTING
    with contextlib.suppress(FileNotFoundError):
        is_young = time.time() - runtime.root.stat().st_mtime < YOUNG_S
        if is_young and held is not Held.RUN:
            return Status.STARTING, ""
    processes = processes_of(place.root)
    if not PROC.is_dir() or not any(process.kind is ProcessKind.QEMU for process in processes):
        return ended, ""
    others = set(holders_of(place.lock)) - {process.pid for process in processes}
    if others or runtime.current().state.exists():
        return ended, ""
    return Status.UNREACHABLE, _sockets_gone(runtime)


def _has_lost_sockets(place: SandboxDir, runtime: RuntimeDir, machine: MachineDir) -> bool:
    """Whether somebody has removed the sockets of a running QEMU. They cannot be bound again: only
    connected clients can go on."""
    if machine.agent_socket(0).exists() and machine.qmp_socket(0).exists():
        return False
    if runtime.current() != machine:
        return False  # another one has just taken over
    # The keeper removes them as well, when QEMU has ended.
    return any(process.kind is ProcessKind.QEMU for process in processes_of(place.root))


def _sockets_gone(runtime: RuntimeDir) -> str:
    return (
        f"QEMU runs, but its sockets in {runtime.root} were removed, so nothing new reaches it; "
        "clients that are connected go on; `kill` ends it, and `start` starts it again"
    )


def _look_at_lock(place: SandboxDir) -> bool | OSError:
    """Return whether a process holds the sandbox's lock; the error if it cannot be opened."""
    try:
        return is_locked(place.lock)
    except OSError as error:
        return error
