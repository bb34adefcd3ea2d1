"""What the service asks of a guest, on the engine's loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from quicksand_tui.guest_view import GuestView, ProcessView
from quicksand_tui.text import sanitise

if TYPE_CHECKING:
    from quicksand.guest_traffic import GuestTraffic

ANSWER_S = 5.0
BUSIEST = 50
"""Processes that are told."""
COMMAND_LIMIT = 200
USER_LIMIT = 32


async def look_inside(sandbox_id: str) -> GuestView:
    """Raises QuicksandError, TimeoutError."""
    from quicksand.sandbox import Sandbox

    sandbox = Sandbox.attach(sandbox_id)
    try:
        async with asyncio.timeout(ANSWER_S):
            stats = await sandbox.stats()
            processes = await sandbox.processes()
    finally:
        sandbox.close()
    busiest = sorted(processes, key=lambda process: -process.cpu_s)[:BUSIEST]
    return GuestView(
        memory_total=stats.guest_memory_total,
        memory_used=max(0, stats.guest_memory_total - stats.guest_memory_available),
        disk_total=stats.guest_disk_total,
        disk_used=max(0, stats.guest_disk_total - stats.guest_disk_free),
        load=stats.guest_load,
        processes=stats.guest_processes,
        uptime_s=stats.guest_uptime_s,
        traffic=stats.guest_traffic,
        busiest=tuple(
            ProcessView(
                pid=process.pid,
                user=sanitise(process.user, limit=USER_LIMIT),
                rss=process.rss,
                cpu_s=process.cpu_s,
                command=sanitise(process.command, limit=COMMAND_LIMIT),
            )
            for process in busiest
        ),
    )


async def ask_traffic(sandbox_id: str) -> GuestTraffic | None:
    """None if it cannot be asked now, or does not tell."""
    from quicksand.errors import QuicksandError
    from quicksand.sandbox import Sandbox

    with contextlib.suppress(QuicksandError, TimeoutError, OSError):
        # Looking on changes nothing: not even a clock that the user has set.
        sandbox = Sandbox.attach(sandbox_id, set_clock=False)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await sandbox.traffic()
        finally:
            sandbox.close()
    return None
