"""What a sandbox uses, of the host and within the guest."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quicksand.agent.session import Session
from quicksand.errors import AgentProtocolError
from quicksand.guest_files import GuestFiles
from quicksand.guest_traffic import GuestTraffic, read_traffic
from quicksand.host.paths import paths
from quicksand.layout import sandbox_dir
from quicksand.registry import Entry

PROCESSES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostUsage:
    """What QEMU takes of the host. Read without asking the guest."""

    cpu_seconds: float
    """CPU time since it started; two readings make a rate."""
    rss: int
    """Bytes of resident memory; shared pages count in full."""
    disk: int
    """Bytes that the sandbox's directory has allocated."""
    uptime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStats:
    """Host and guest together."""

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
    """None if the guest does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestProcess:
    """A process of the guest, as the guest tells it."""

    pid: int
    ppid: int
    user: str
    state: str
    rss: int
    cpu_s: float
    command: str

    @classmethod
    def parse_all(cls, reply: dict[str, Any]) -> list[GuestProcess]:
        """Raises AgentProtocolError."""
        try:
            found = reply["processes"]
            assert isinstance(found, list)
            return [
                cls(
                    pid=int(value["pid"]),
                    ppid=int(value["ppid"]),
                    user=str(value["user"])[:64],
                    state=str(value["state"])[:8],
                    rss=int(value["rss"]),
                    cpu_s=float(value["cpu_s"]),
                    command=str(value["command"])[:4096],
                )
                for value in found[:PROCESSES_MAX]
            ]
        except (AssertionError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise AgentProtocolError("the agent's list of processes makes no sense") from error


async def read_stats(entry: Entry, session: Callable[[], Awaitable[Session]]) -> SandboxStats:
    """Read both sides. Raises as `Session.request` does, AgentProtocolError for nonsense."""
    host = await asyncio.to_thread(host_usage, entry)
    info = await (await session()).request("info")
    traffic = await read_traffic(GuestFiles(session))
    try:
        return SandboxStats(
            host=host,
            guest_memory_total=int(info["memory"]["total"]),
            guest_memory_available=int(info["memory"]["available"]),
            guest_disk_total=int(info["disk"]["total"]),
            guest_disk_free=int(info["disk"]["free"]),
            guest_load=float(info["load"][0]),
            guest_processes=int(info["processes"]),
            guest_uptime_s=float(info["uptime_s"]),
            guest_traffic=traffic,
        )
    except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        raise AgentProtocolError("the agent's information makes no sense") from error


def host_usage(entry: Entry) -> HostUsage:
    """What one sandbox takes of the host; zeros for one that does not run."""
    disk = allocated_size(sandbox_dir(paths(), entry.id).root)
    if entry.run is None:
        return HostUsage(cpu_seconds=0.0, rss=0, disk=disk, uptime_s=0.0)
    cpu, rss = process_usage(entry.run.qemu_pid)
    uptime = max(0.0, time.time() - entry.run.started)
    return HostUsage(cpu_seconds=cpu, rss=rss, disk=disk, uptime_s=uptime)


def process_usage(pid: int) -> tuple[float, int]:
    """(CPU seconds, resident bytes) of a process; zeros where /proc does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0.0, 0
    # The name in brackets may hold anything, so count fields from its end (proc(5)).
    fields = stat[stat.rindex(")") + 2 :].split()
    ticks = int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK"), pages * os.sysconf("SC_PAGE_SIZE")


def allocated_size(path: Path) -> int:
    """Bytes that a directory's files occupy on disk (not their apparent sizes)."""
    total = 0
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    total += allocated_size(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return total
    return total
