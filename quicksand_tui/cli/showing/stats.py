"""`quicksand-tui stats`: the sandboxes' use of the host, and the load within them."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.qemu.host_usage import host_usage
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox
from quicksand.things.status import Status

from quicksand_tui.cli.click_commands import command_of
from quicksand_tui.cli.output import print_json, print_table, show_size
from quicksand_tui.cli.runner import run_async
from quicksand_tui.model.amounts import percent_text
from quicksand_tui.model.remedy_words import text_of

if TYPE_CHECKING:
    from quicksand.life.sandbox_stats import SandboxStats
    from quicksand.records.sandboxes import Entry

    from quicksand_tui.cli.runner import Signals

SAMPLE_S = 0.5
"""Seconds between the two readings from which a CPU rate is calculated."""

GUEST_S = 5.0
"""Seconds to wait for a guest to answer."""

HEADS = ("NAME", "CPU", "RSS", "DISK", "GUEST MEMORY", "GUEST DISK", "LOAD", "PROCESSES", "NET I/O")
HOME = "\x1b[H\x1b[J"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The figures of one sandbox at one moment."""

    name: str
    cpu_percent: float
    """CPU time in percent of one core."""
    rss: int
    memory: int
    """Bytes of the machine's own memory, without pages of files."""
    memory_bound: int | None
    """Bytes of memory beyond which the sandbox is paused; None if unknown."""
    oversized: str
    """The reason why it is beyond its size, or ""."""
    disk: int
    guest: SandboxStats | None
    error: str
    """The reason why ``guest`` is None."""

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of `--json`: sizes in bytes, traffic in bytes since the boot."""
        facts: dict[str, Any] = {
            "name": self.name,
            "cpu_percent": round(self.cpu_percent, 1),
            "rss": self.rss,
            "memory": self.memory,
            "memory_bound": self.memory_bound,
            "oversized": self.oversized or None,
            "disk": self.disk,
            "error": self.error or None,
            "guest": None,
        }
        if (guest := self.guest) is not None:
            traffic = guest.guest_traffic
            facts["guest"] = {
                "memory_total": guest.guest_memory_total,
                "memory_available": guest.guest_memory_available,
                "disk_total": guest.guest_disk_total,
                "disk_free": guest.guest_disk_free,
                "load": guest.guest_load,
                "processes": guest.guest_processes,
                "uptime_s": guest.guest_uptime_s,
                "received": None if traffic is None else traffic.received,
                "sent": None if traffic is None else traffic.sent,
            }
        return facts

    def to_row(self) -> tuple[object, ...]:
        """Returns the cells of a row of the table."""
        cpu = percent_text(self.cpu_percent, wide=True)
        rss = f"{show_size(self.rss)}, too much" if self.oversized else show_size(self.rss)
        host = (self.name, cpu, rss, show_size(self.disk))
        if (guest := self.guest) is None:
            return (*host, self.error or "-", "", "", "", "")
        traffic = guest.guest_traffic
        moved = traffic and f"{show_size(traffic.received)} / {show_size(traffic.sent)}"
        memory = guest.guest_memory_total - guest.guest_memory_available
        disk = guest.guest_disk_total - guest.guest_disk_free
        return (
            *host,
            f"{show_size(memory)} of {show_size(guest.guest_memory_total)}",
            f"{show_size(disk)} of {show_size(guest.guest_disk_total)}",
            f"{guest.guest_load:.2f}",
            guest.guest_processes,
            moved or "-",
        )


@command_of("stats")
def stats_command(names: tuple[str, ...], watch: float | None, as_json: bool) -> int:
    """Show how much sandboxes use, on the host and inside.

    CPU is in percent of one core. The host measures CPU, RSS and DISK; the guest reports the rest.
    Without names, all running sandboxes are shown.
    """

    async def main(signals: Signals) -> int:
        reader = Reader()
        try:
            await reader.read(names)
            await asyncio.sleep(SAMPLE_S)
            while True:
                _show(await reader.read(names), as_json=as_json, again=watch is not None)
                if watch is None:
                    return 0
                await asyncio.sleep(watch)
        finally:
            reader.close()

    return run_async(main)


def _show(readings: list[Reading], *, as_json: bool, again: bool) -> None:
    if as_json:
        print_json([reading.to_json() for reading in readings])
        return
    if again and sys.stdout.isatty():
        sys.stdout.write(HOME)
    print_table(HEADS, [reading.to_row() for reading in readings])


class Reader:
    """Takes readings. Keeps connections and the last CPU times between readings."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, Sandbox] = {}
        self._cpu: dict[str, tuple[float, float]] = {}
        """The time and the CPU seconds of the last reading, by the sandbox's id."""

    async def read(self, names: tuple[str, ...]) -> list[Reading]:
        """Reads each of the sandboxes. Raises SandboxNotFoundError for an unknown name."""
        registry = Registry(paths())
        if names:
            entries = [registry.find(name) for name in names]
        else:
            entries = [entry for entry in registry.list() if entry.is_live]
        return list(await asyncio.gather(*(self._read(entry) for entry in entries)))

    async def _read(self, entry: Entry) -> Reading:
        host = await asyncio.to_thread(host_usage, entry)
        now = time.monotonic()
        before, cpu = self._cpu.get(entry.id, (now, host.cpu_seconds))
        self._cpu[entry.id] = now, host.cpu_seconds
        percent = 100 * (host.cpu_seconds - cpu) / (now - before) if now > before else 0.0
        guest, error = await self._ask(entry)
        return Reading(
            name=entry.name,
            cpu_percent=max(0.0, percent),
            rss=host.rss,
            memory=host.memory,
            memory_bound=host.memory_bound,
            oversized=host.oversized,
            disk=host.disk,
            guest=guest,
            error=error,
        )

    async def _ask(self, entry: Entry) -> tuple[SandboxStats | None, str]:
        """Returns the guest's own figures, or None and the reason why there are none."""
        if entry.status is not Status.RUNNING:
            return None, entry.status.value
        try:
            if entry.id not in self._sandboxes:
                self._sandboxes[entry.id] = Sandbox.attach(entry.id)
            async with asyncio.timeout(GUEST_S):
                return await self._sandboxes[entry.id].stats(), ""
        except TimeoutError:
            return None, "the guest does not answer"
        except QuicksandError as error:
            if (gone := self._sandboxes.pop(entry.id, None)) is not None:
                gone.close()
            return None, text_of(error)

    def close(self) -> None:
        """Closes the connections to all sandboxes."""
        for sandbox in self._sandboxes.values():
            sandbox.close()
