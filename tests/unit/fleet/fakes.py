"""Machines of a fleet that are none: they keep the same books."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from quicksand.base.capacity import OVERHEAD
from quicksand.base.errors import MemoryBudgetError, RemoteUnreachableError
from quicksand.hosted.remote_host import RemoteHost
from quicksand_fleet.capacity import Capacity
from quicksand_fleet.interface import HostState
from quicksand_fleet.machine import Machine
from quicksand_fleet.over_ssh import OverSsh

GIB = 1024**3


def room_for(guests: int, *, memory_bytes: int = GIB) -> int:
    """The memory of a machine that holds so many guests."""
    return guests * (memory_bytes + OVERHEAD)


@dataclass
class Truth:
    """What a machine really has, whatever it has told."""

    name: str
    budget: int
    images: tuple[str, ...] = ("debian",)
    claims: dict[str, int] = field(default_factory=dict)
    sandboxes: dict[str, int] = field(default_factory=dict)
    is_away: bool = False
    silent: asyncio.Event | None = None
    """Until it is set, nothing is told."""
    asked: int = 0
    most: int = 0
    """The most memory that was ever given away."""
    clients: list[FakeMachine] = field(default_factory=list)

    @property
    def taken(self) -> int:
        return sum(self.claims.values()) + sum(self.sandboxes.values())

    def take(self, id_: str, memory_bytes: int) -> None:
        self.asked += 1
        if self.is_away:
            raise RemoteUnreachableError(f"{self.name} is away")
        wanted = memory_bytes + OVERHEAD
        if self.taken + wanted > self.budget:
            raise MemoryBudgetError(f"{self.name} is full")
        self.claims[id_] = wanted
        self.most = max(self.most, self.taken)

    def begin(self, id_: str) -> None:
        """The sandbox of a claim runs."""
        self.sandboxes[id_] = self.claims.pop(id_)

    def end(self, id_: str) -> None:
        self.sandboxes.pop(id_, None)

    def tell(self) -> None:
        """Tell all clients what there is now."""
        for client in self.clients:
            client.hear()

    def lose(self) -> None:
        """It is away: its claims end with the connections, its sandboxes run on."""
        self.is_away = True
        self.claims.clear()
        self.tell()

    def come_back(self) -> None:
        self.is_away = False
        self.tell()


class FakeClaim:
    def __init__(self, truth: Truth, id_: str) -> None:
        self._truth, self._id = truth, id_

    def drop(self) -> None:
        self._truth.claims.pop(self._id, None)


class FakeMachine:
    """One client's view of a machine (`Machine`)."""

    def __init__(self, truth: Truth, changed: Callable[[], None]) -> None:
        self.name = self.address = truth.name
        self.state, self.why = HostState.UNREACHABLE, "it has not answered yet"
        self.since: float | None = None
        self.capacity: Capacity | None = None
        self.gate: asyncio.Event | None = None
        """While it is there and not set, nothing is answered."""
        self._truth, self._changed = truth, changed
        truth.clients.append(self)

    async def run(self) -> None:
        if self._truth.silent is not None:
            await self._truth.silent.wait()
        self.hear()
        await asyncio.Event().wait()

    def hear(self) -> None:
        truth, self.since = self._truth, 1.0
        if truth.is_away:
            self.state, self.why = HostState.UNREACHABLE, "no route to host"
        else:
            self.state, self.why = HostState.READY, ""
            self.capacity = Capacity(
                machine_id=truth.name.encode().hex().rjust(32, "0")[-32:],
                cpus=4,
                memory_bytes=truth.budget,
                free_bytes=max(0, truth.budget - truth.taken),
                sandboxes=len(truth.sandboxes),
                images=truth.images,
                claims=sorted(truth.claims),
            )
        self._changed()

    async def claim(self, id_: str, memory_bytes: int) -> FakeClaim:
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        self._truth.take(id_, memory_bytes)
        return FakeClaim(self._truth, id_)

    def host(self) -> RemoteHost:
        return RemoteHost(f"ssh://{self.name}")


@contextlib.asynccontextmanager
async def fleet_of(*truths: Truth, drained: set[str] | None = None) -> AsyncIterator[OverSsh]:
    """One client of these machines."""
    kept = set() if drained is None else drained

    def make(changed: Callable[[], None]) -> Iterable[Machine]:
        return [FakeMachine(truth, changed) for truth in truths]

    def write(name: str, on: bool) -> None:
        (kept.add if on else kept.discard)(name)

    fleet = OverSsh(make, lambda: frozenset(kept), write)
    await asyncio.sleep(0)
    try:
        yield fleet
    finally:
        await fleet.close()
