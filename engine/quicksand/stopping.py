"""Stopping a machine, from any client, in any state."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from quicksand.agent.link import AgentLink
from quicksand.errors import MachineError, QuicksandError
from quicksand.host.files import is_locked
from quicksand.layout import SandboxDir, runtime_dir, sandbox_dir
from quicksand.lifecycle import KILL_WAIT_S, until_unlocked
from quicksand.qemu.command import machine_name
from quicksand.qemu.qmp import Monitor
from quicksand.registry import Record, Registry, RunState

AGENT_TIMEOUT_S = 2.0


async def stop_machine(
    registry: Registry,
    record: Record,
    link: AgentLink | None,
    run: RunState | None,
    *,
    grace: float,
) -> None:
    """End the machine of ``record`` and return when keeper and QEMU are gone.

    Asks the guest first, for up to ``grace`` seconds, unless its disk is to be discarded anyway.
    Raises MachineError if it cannot be ended. No error if it does not run.
    """
    lock = sandbox_dir(registry.paths, record.id).lock
    if not is_locked(lock):
        return
    if grace > 0 and not record.discard and link is not None:
        if run is not None and run.paused:
            await _let_go_on(registry, record)
        asked = await _ask_guest(link, grace)
        if asked and await until_unlocked(lock, timeout=grace + AGENT_TIMEOUT_S):
            return
    if run is not None:
        await _end_processes(sandbox_dir(registry.paths, record.id), run)
    if not await until_unlocked(lock, timeout=KILL_WAIT_S):
        raise MachineError(f"the processes of sandbox {record.name!r} do not end")


async def _let_go_on(registry: Registry, record: Record) -> None:
    """Resume a paused guest, which could not hear us otherwise."""
    with contextlib.suppress(QuicksandError):
        monitor = await Monitor.connect(
            runtime_dir(registry.paths, record.id).current(), timeout=2.0
        )
        try:
            await monitor.execute("cont")
        finally:
            await monitor.close()


async def _ask_guest(link: AgentLink, grace: float) -> bool:
    """Whether the guest has agreed to power down."""
    with contextlib.suppress(QuicksandError):
        session = await link.session(timeout=AGENT_TIMEOUT_S)
        params = {"mode": "poweroff", "grace": min(3.0, grace)}
        await session.request("shutdown", params, timeout=AGENT_TIMEOUT_S)
        return True
    return False


async def _end_processes(place: SandboxDir, run: RunState) -> None:
    """Have the keeper end QEMU; if the keeper is gone, end QEMU ourselves.

    The caller has seen the lock held, so one of the two lives. A process is only signalled if its
    command line names this sandbox: the other's id may have been reused by a stranger.
    """
    for pid, number in ((run.keeper_pid, signal.SIGTERM), (run.qemu_pid, signal.SIGKILL)):
        if place.root.name in await _command_line(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            if number == signal.SIGTERM:
                return
    end_strays(place)


def end_strays(place: SandboxDir, *, only: int | None = None, but: int | None = None) -> None:
    """End the QEMUs of a sandbox whose keeper is gone: that of the process id ``only``, or all
    ``but`` one. There are two if that happened while one took over from the other. Linux only."""
    name = machine_name(str(place.root))
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid, line = int(directory.name), (directory / "cmdline").read_bytes()
            words = line.decode("utf-8", "replace").split("\0")
            ours = "qemu" in Path(words[0]).name and name in words
            if ours and only in (None, pid) and pid != but:
                os.kill(pid, signal.SIGKILL)


async def _command_line(pid: int) -> str:
    """A process's command line, "" if there is no such process."""
    if Path("/proc/self").exists():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
        return ""
    process = await asyncio.create_subprocess_exec(
        "ps", "-ww", "-o", "command=", "-p", str(pid), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    return output.decode("utf-8", "replace")
