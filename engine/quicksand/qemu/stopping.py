"""Stopping a machine in any state, from any client."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from quicksand.base.effort import best_effort
from quicksand.base.errors import MachineError
from quicksand.base.files import is_locked, lock_within
from quicksand.base.processes import (
    PROC,
    Process,
    ProcessKind,
    command_of,
    holders_of,
    is_same_place,
    list_processes,
    processes_of,
)
from quicksand.base.remedies import Remedy, Words
from quicksand.guest.agent.link import AgentLink
from quicksand.qemu.keeper_check import ensure_keeper
from quicksand.qemu.process import END_POLL_S, KILL_WAIT_S, until_unlocked
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, RunState

AGENT_TIMEOUT_S = 2.0
HISTORY_WAIT_S = 5.0
"""Seconds to wait for a client that makes or restores a checkpoint."""
KEEPER_GRACE_S = 5.0
"""Seconds that a keeper may take to end its QEMU (which gets 2 s of that) and to clean up."""


async def stop_machine(
    registry: Registry,
    record: Record,
    link: AgentLink | None,
    run: RunState | None,
    *,
    grace: float,
) -> None:
    """End the machine of ``record``, in whatever state it is, and return when keeper and QEMU are
    gone. It is no error if it is not running.

    Unless the sandbox is ephemeral, the guest is first asked to power down and gets ``grace``
    seconds for it. Raises MachineError if the processes cannot be ended.
    """
    place = sandbox_dir(registry.paths, record.id)
    await ensure_keeper(registry, record)  # the keeper records how the machine ends
    unfinished = runtime_dir(registry.paths, record.id).current().unfinished.exists()
    can_answer = grace > 0 and link is not None and not unfinished
    if is_locked(place.lock) and can_answer and not record.discard:
        assert link is not None
        runs = run is None or not run.paused or await _let_go_on(registry, record)
        asked = runs and await _ask_guest(link, grace, place.engine_log)
        if asked and await until_unlocked(place.lock, timeout=grace + AGENT_TIMEOUT_S):
            await asyncio.to_thread(registry.tidy, record.id)
            return
    await end_processes(place)
    if not await until_unlocked(place.lock, timeout=KILL_WAIT_S):
        raise _still_held(place, record)
    await asyncio.to_thread(registry.tidy, record.id)


def _still_held(place: SandboxDir, record: Record) -> MachineError:
    """The error for a sandbox whose lock is still held though its processes have been killed."""
    pid = next(iter(holders_of(place.lock)), None)
    if pid is None:
        return MachineError(f"the processes of sandbox {record.name!r} do not end")
    return MachineError(
        f"no process of the sandbox {record.name!r} is left, but process {pid} ({command_of(pid)}) "
        "is still starting it",
        hint=Words("end that process, or ", Remedy("end_and_trash", name=record.name)),
    )


async def _let_go_on(registry: Registry, record: Record) -> bool:
    """Resume a paused guest, which could not answer otherwise. Returns whether it was resumed: not
    if another client works on it, which may be giving it another memory."""
    place = sandbox_dir(registry.paths, record.id)
    with best_effort("resume the paused guest", place.engine_log):
        lock = await asyncio.to_thread(lock_within, place.history_lock, HISTORY_WAIT_S)
        if lock is None:
            raise MachineError("another client is making or restoring a checkpoint")
        try:
            machine = runtime_dir(registry.paths, record.id).current()
            if machine.unfinished.exists():
                raise MachineError("its last revert is not finished")
            monitor = await Monitor.connect(machine, timeout=2.0)
            try:
                await monitor.execute("cont")
            finally:
                await monitor.close()
        finally:
            os.close(lock)
        return True
    return False


async def _ask_guest(link: AgentLink, grace: float, log: Path) -> bool:
    """Ask the guest to power down; returns whether it agreed, which takes a millisecond. On a busy
    host the guest must not lose unwritten data, so it has all of ``grace``.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + max(AGENT_TIMEOUT_S, grace)
    with best_effort("ask the guest to power down", log):
        session = await link.session(timeout=deadline - loop.time())
        params = {"mode": "poweroff", "grace": min(3.0, grace)}
        await session.request("shutdown", params, timeout=deadline - loop.time())
        return True
    return False


async def end_processes(place: SandboxDir) -> None:
    """Have the keeper end QEMU, then kill the remaining processes of the sandbox."""
    found = await asyncio.to_thread(processes_of, place.root)
    keepers = [process for process in found if process.kind is ProcessKind.KEEPER]
    for keeper in keepers:
        keeper.send(signal.SIGTERM)
    deadline = asyncio.get_running_loop().time() + (KEEPER_GRACE_S if keepers else 0)
    while any(process.is_there for process in found):
        if asyncio.get_running_loop().time() >= deadline:
            break
        await asyncio.sleep(END_POLL_S)
    # Listed again, since the keeper may have been starting another QEMU.
    for process in await asyncio.to_thread(processes_of, place.root):
        process.send(signal.SIGKILL)


def end_strays(place: SandboxDir, *, only: int | None = None, but: int | None = None) -> None:
    """Kill QEMUs of a sandbox whose keeper is gone: the one with the process id ``only``, or all
    except ``but``. There are two if the keeper ended during a revert."""
    for process in processes_of(place.root):
        ours = process.kind is ProcessKind.QEMU
        if ours and only in (None, process.pid) and process.pid != but:
            process.send(signal.SIGKILL)


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
