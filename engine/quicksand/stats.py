"""What a sandbox uses on the host and within the guest."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.agent import values
from quicksand.agent.session import Session
from quicksand.errors import AgentProtocolError
from quicksand.guest_files import GuestFiles
from quicksand.guest_traffic import GuestTraffic, read_traffic
from quicksand.host.footprint import allocated_size
from quicksand.host.paths import paths
from quicksand.layout import runtime_dir, sandbox_dir
from quicksand.oversized import qemu_memory, too_much, why_oversized
from quicksand.sandbox_records import Entry

PROCESSES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsage:
    """What QEMU uses on the host, read from /proc without asking the guest."""

    cpu_seconds: float
    """CPU time since QEMU started; the difference of two readings gives a rate."""
    rss: int
    """Bytes of resident memory; shared pages count in full."""
    disk: int
    """Bytes that the sandbox's directory occupies on disk."""
    uptime_s: float
    memory: int = 0
    """Bytes of memory of QEMU's own, in RAM or in swap: without what is read from files."""
    memory_bound: int | None = None
    """Bytes of it beyond which the sandbox is paused; None if that is not watched."""
    oversized: str = ""
    """Why it is beyond its size, if it is: it has more of the host's memory than it may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStats:
    """What a sandbox uses on the host and what its guest reports. Memory and disk are in bytes."""

    host: HostUsage
    guest_memory_total: int
    guest_memory_available: int
    guest_disk_total: int
    guest_disk_free: int
    guest_load: float
    """The guest's load average over one minute."""
    guest_processes: int
    guest_uptime_s: float
    guest_traffic: GuestTraffic | None
    """None if the guest does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProcess:
    """A process of the guest, as the guest reports it."""

    pid: int
    ppid: int
    user: str
    state: str
    """One letter, as in proc_pid_stat(5)."""
    rss: int
    """Bytes of resident memory."""
    cpu_s: float
    command: str

    @classmethod
    def parse_all(cls, reply: dict[str, Any]) -> list[GuestProcess]:
        """Parse the agent's reply. Raises AgentProtocolError."""
        try:
            found = reply["processes"]
            assert isinstance(found, list)
            return [
                cls(
                    pid=values.whole(value["pid"]),
                    ppid=values.whole(value["ppid"]),
                    user=values.text(value["user"], 64),
                    state=values.text(value["state"], 8),
                    rss=values.whole(value["rss"]),
                    cpu_s=values.real(value["cpu_s"]),
                    command=values.text(value["command"]),
                )
                for value in found[:PROCESSES_MAX]
            ]
        except (AssertionError, KeyError, TypeError, ValueError) as error:
            raise AgentProtocolError("the agent's list of processes makes no sense") from error


async def read_stats(entry: Entry, session: Callable[[], Awaitable[Session]]) -> SandboxStats:
    """Read the host's and the guest's figures. Raises what `Session.request` raises, and
    AgentProtocolError if the agent's reply makes no sense."""
    host = await asyncio.to_thread(host_usage, entry)
    info = await (await session()).request("info")
    traffic = await read_traffic(GuestFiles(session))
    try:
        return SandboxStats(
            host=host,
            guest_memory_total=values.whole(info["memory"]["total"]),
            guest_memory_available=values.whole(info["memory"]["available"]),
            guest_disk_total=values.whole(info["disk"]["total"]),
            guest_disk_free=values.whole(info["disk"]["free"]),
            guest_load=values.real(info["load"][0]),
            guest_processes=values.whole(info["processes"]),
            guest_uptime_s=values.real(info["uptime_s"]),
            guest_traffic=traffic,
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise AgentProtocolError("the agent's information makes no sense") from error


def host_usage(entry: Entry) -> HostUsage:
    """What one sandbox uses on the host; all but ``disk`` is 0 if it is not running."""
    known_paths = paths()
    disk = allocated_size(sandbox_dir(known_paths, entry.id).root)
    if entry.run is None:
        return HostUsage(cpu_seconds=0.0, rss=0, disk=disk, uptime_s=0.0)
    cpu, rss = process_usage(entry.run.qemu_pid)
    uptime = max(0.0, time.time() - entry.run.started)
    memory, bound = qemu_memory(entry.run.qemu_pid, entry.run.qemu_command)
    why = why_oversized(runtime_dir(known_paths, entry.id).current())
    if not why and bound is not None and memory > bound:
        why = too_much(memory, bound)
    return HostUsage(
        cpu_seconds=cpu,
        rss=rss,
        disk=disk,
        uptime_s=uptime,
        memory=memory,
        memory_bound=bound,
        oversized=why,
    )


def process_usage(pid: int) -> tuple[float, int]:
    """(CPU seconds, resident bytes) of a process, from /proc (proc(5)); zeros if it is gone or
    there is no /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0, 0
    # The name in brackets may contain anything, so fields are counted from its end.
    fields = stat[stat.rindex(")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")


def memory_of(pid: int) -> int:
    """Bytes of memory of a process; pages that it shares with others count in part (PSS, proc(5)).
    Where the system does not tell, its resident bytes; 0 if it is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in text.splitlines() if line[:4] == "Pss:") * 1024
    except (OSError, StopIteration):
        return process_usage(pid)[1]
