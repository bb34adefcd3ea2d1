"""Reads the figures of a sandbox: those of its QEMU, and those of its guest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from quicksand.base.errors import AgentProtocolError
from quicksand.guest.agent import values
from quicksand.guest.agent.session import Session
from quicksand.guest.guest_files import GuestFiles
from quicksand.guest.network import read_traffic
from quicksand.qemu.host_usage import HostUsage, host_usage
from quicksand.records.sandboxes import Entry
from quicksand.things.sandbox_facts import GuestTraffic

PROCESSES_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxStats:
    """A sandbox's use of the host, and its guest's own report. Memory and disk are in bytes."""

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
    """Read the host's and the guest's figures. Raises as `Session.request`, and AgentProtocolError
    if the agent's reply makes no sense."""
    return await read_guest(await asyncio.to_thread(host_usage, entry), session)


async def read_guest(host: HostUsage, session: Callable[[], Awaitable[Session]]) -> SandboxStats:
    """Read only the guest's figures, and join them with its host's. Raises as `read_stats`."""
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
