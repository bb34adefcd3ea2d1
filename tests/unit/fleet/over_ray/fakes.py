"""Ray, imitated: machines with memory, and placement groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from quicksand.hosted.codec import encode
from quicksand_fleet.capacity import Capacity
from quicksand_fleet.over_ray.desk import DeskError, Place
from quicksand_fleet.over_ray.desk_client import State

MIB = 1024**2
ONE, TWO = "1" * 32, "2" * 32


def capacity(machine_id: str, free: int, images: Sequence[str] = ()) -> Capacity:
    return Capacity(
        machine_id=machine_id,
        cpus=2,
        memory_bytes=4096 * MIB,
        free_bytes=free,
        sandboxes=0,
        images=images,
    )


class FakeRay:
    """A `Desk`, and a `Client` with what it knows as its state."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.kept: dict[str, Place] = {}
        self.room = {ONE: 4096 * MIB, TWO: 4096 * MIB}
        """What Ray keeps on each machine, in bytes."""
        self.asked: list[tuple[object, ...]] = []
        self.failing: set[str] = set()
        """Methods of hosts that do not answer."""
        self.state = State()
        self.slow: asyncio.Event | None = None
        self._changed = changed

    def tell(self, **changes: Any) -> None:
        """Tell another state."""
        self.state = replace(self.state, **changes)
        self._changed()

    def tell_ready(self, *capacities: Capacity) -> None:
        """Tell that machines are there, with these figures."""
        looks = {one.machine_id: {"capacity": encode(one), "kept": []} for one in capacities}
        self.tell(alive=frozenset(looks), looks=looks, error="", places=())

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def machines(self) -> Collection[str]:
        return self.room

    async def places(self) -> Sequence[Place]:
        return [*self.kept.values()]

    async def take(self, place: Place, *, timeout_s: float) -> bool:
        if self.slow is not None:
            await self.slow.wait()
        if self.state.error == "gone":
            raise DeskError("gone")
        taken = sum(
            one.memory_bytes for one in self.kept.values() if one.machine_id == place.machine_id
        )
        if taken + place.memory_bytes > self.room[place.machine_id]:
            return False
        self.kept[place.id] = place
        return True

    async def give_back(self, id_: str) -> None:
        if self.state.error == "gone":
            raise DeskError("gone")
        self.kept.pop(id_, None)

    async def ask(self, machine_id: str, method: str, *args: Any) -> Any:
        self.asked.append((machine_id, method, *args))
        if method in self.failing:
            raise DeskError("no answer")
        return None
