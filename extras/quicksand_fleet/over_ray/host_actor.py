"""`Host`: the actor that answers for one machine in Ray. It holds no truth: after a restart, it
reads its machine's disk."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

from quicksand.extending import OVERHEAD, best_effort, encode, paths

from quicksand_fleet.far_end import MachineOfFleets
from quicksand_fleet.over_ray.cluster_record import ADDRESS_VARIABLE, NAME_VARIABLE
from quicksand_fleet.over_ray.desk import Desk, Place
from quicksand_fleet.over_ray.places import Kept, Places
from quicksand_fleet.over_ray.reconciling import plan_repair

EVERY_S = 10.0
"""Seconds between two comparisons of Ray's books with the disk."""
PARENT_S = 1.0
"""Seconds between two looks whether our parent, Ray's process here, still exists. When it ends, Ray
leaves us running (measured), and our machine soon has another `Host`."""
AGAIN_S = 5.0
"""Seconds between two attempts to keep a place again."""
LASTS_S = 365 * 86400
"""Seconds after which the place of a sandbox would expire; it does not while the sandbox runs."""


class Host:
    """One machine. Its methods are called by way of Ray, several at a time."""

    def __init__(self, make_desk: Callable[[], Desk], machine_id: str) -> None:
        self._machine_id = machine_id
        self._desk = make_desk()
        self._machine = MachineOfFleets(paths())
        self._places = Places(paths())
        self._parent = os.getppid()
        self._tasks: list[asyncio.Task[None]] = []

    async def look(self) -> dict[str, Any]:
        """Return the machine's `Capacity`, its name and address, and the ids of the places that
        sandboxes have."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._repair_always(), name="quicksand-repair"),
                asyncio.create_task(self._end_with_parent(), name="quicksand-parent"),
            ]
        capacity = await asyncio.to_thread(self._machine.look)
        kept = await asyncio.to_thread(self._places.list)
        return {
            "name": os.environ.get(NAME_VARIABLE, ""),
            "address": os.environ.get(ADDRESS_VARIABLE, ""),
            "capacity": encode(capacity),
            "kept": [one.id for one in kept],
        }

    async def bind(self, id_: str, sandbox: str, memory_bytes: int) -> None:
        """Note that a sandbox of this machine has the place ``id_``."""
        kept = Kept(id=id_, sandbox=sandbox, memory_bytes=memory_bytes + OVERHEAD)
        await asyncio.to_thread(self._places.bind, kept)

    async def drop(self, id_: str) -> None:
        """Note that no sandbox has the place any more."""
        await asyncio.to_thread(self._places.drop, id_)

    async def repair(self) -> None:
        """Make Ray's books and the disk agree. Raises DeskError, OSError, HostError."""
        places = [one for one in await self._desk.places() if one.machine_id == self._machine_id]
        kept = await asyncio.to_thread(self._places.list)
        live = await asyncio.to_thread(self._live, kept)
        repair = plan_repair(places, kept, live, time.time())
        for id_ in repair.give_back:
            await self._desk.give_back(id_)
        for id_ in repair.drop:
            await asyncio.to_thread(self._places.drop, id_)
        for one in repair.take:
            place = Place(
                id=one.id,
                machine_id=self._machine_id,
                memory_bytes=one.memory_bytes,
                expires_at=int(time.time() + LASTS_S),
            )
            await self._desk.take(place, timeout_s=AGAIN_S)

    def _live(self, kept: list[Kept]) -> set[str]:
        return {one.id for one in kept if self._places.is_live(one)}

    async def _repair_always(self) -> None:
        while True:
            with best_effort("compare Ray's books with the disk", paths().engine_log):
                await self.repair()
            await asyncio.sleep(EVERY_S)

    async def _end_with_parent(self) -> None:
        while os.getppid() == self._parent:  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(PARENT_S)
        os._exit(1)
