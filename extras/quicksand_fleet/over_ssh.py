"""The back end for machines that are reached by ssh, and for local nodes (`BackEnd`).

It is optimistic: it chooses a machine by the last reports, and asks it to keep the memory. The
machine decides; if it refuses, the next one is asked. No other machine is asked anything: machines
report changes by themselves.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quicksand import RemoteHost
from quicksand.errors import (
    FleetError,
    FleetHostNotFoundError,
    MemoryBudgetError,
    RemoteError,
    RemoteUnreachableError,
)
from quicksand.extending import best_effort, paths

from quicksand_fleet.drained import Drained
from quicksand_fleet.interface import (
    FleetEvent,
    FleetEventKind,
    FleetHost,
    HostState,
    Need,
    Reservation,
)
from quicksand_fleet.machine import Claim, Machine
from quicksand_fleet.placing import candidates, wanted_bytes
from quicksand_fleet.telling import Telling
from quicksand_fleet.waiting import Attempt, place_within

REFUSED_S = 5.0
"""Seconds for which a machine that has refused a sandbox is not asked again for one of that size,
unless it reports a change."""

ANSWER_S = 30.0
"""Seconds within which a machine must keep memory, or refuse."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """The refusal of a machine that had no memory for a guest, though its report said otherwise."""

    memory_bytes: int
    until: float
    """The end of the refusal, by the loop's clock."""
    sandboxes: int
    free_bytes: int


@dataclass(slots=True)
class _Held:
    """A reservation of this program."""

    reservation: Reservation
    claim: Claim


class OverSsh:
    """A fleet of machines that each keep their own books."""

    def __init__(
        self,
        make: Callable[[Callable[[], None]], Iterable[Machine]],
        read_drained: Callable[[], frozenset[str]],
        write_drained: Callable[[str, bool], None],
        place: Path | None = None,
    ) -> None:
        """``make`` makes the machines, and is given a function to call when they have changed.
        ``read_drained`` and ``write_drained`` load and store which of them are drained; other
        programs may change that in the directory ``place``. An event loop must run."""
        self._machines: dict[str, Machine] = {one.name: one for one in make(self._note)}
        self._drained = Drained(read_drained, write_drained, self._note)
        self._asking: dict[str, tuple[str, Need]] = {}
        """By request id: the machine that has not answered yet, or does not report the memory yet,
        and the need."""
        self._held: dict[str, _Held] = {}
        self._refusals: dict[str, _Refusal] = {}
        self._changed = asyncio.Event()
        self._telling = Telling()
        self._is_closed = False
        self._running = [
            asyncio.create_task(one.run(), name="quicksand-fleet")
            for one in self._machines.values()
        ]
        if place is not None:
            following = asyncio.create_task(
                self._drained.follow(place), name="quicksand-fleet-drained"
            )
            self._running.append(following)

    # What is known

    def hosts(self) -> Sequence[FleetHost]:
        """See `BackEnd.hosts`."""
        return [self._host_view(one) for _, one in sorted(self._machines.items())]

    def _host_view(self, machine: Machine) -> FleetHost:
        capacity = machine.capacity
        state = machine.state
        if machine.name in self._drained.names and state is HostState.READY:
            is_empty = capacity is not None and not capacity.sandboxes and not capacity.claims
            state = HostState.DRAINED if is_empty else HostState.DRAINING
        if capacity is None:
            return FleetHost(
                name=machine.name,
                address=machine.address,
                state=state,
                since=machine.since,
                why=machine.why,
            )
        ours = {id_: need for id_, (name, need) in self._asking.items() if name == machine.name}
        reserved = sum(map(wanted_bytes, ours.values()))
        untold = sum(wanted_bytes(need) for id_, need in ours.items() if id_ not in capacity.claims)
        return FleetHost(
            name=machine.name,
            machine_id=capacity.machine_id,
            address=machine.address,
            state=state,
            since=machine.since,
            why=machine.why,
            cpus=capacity.cpus,
            memory_bytes=capacity.memory_bytes,
            free_bytes=max(0, capacity.free_bytes - untold),
            reserved_bytes=reserved,
            sandboxes=capacity.sandboxes,
            images=tuple(capacity.images),
        )

    def watch(self) -> AsyncIterator[FleetEvent]:
        """See `BackEnd.watch`."""
        return self._telling.watch()

    def host(self, name: str) -> RemoteHost:
        """See `BackEnd.host`."""
        return self._find(name).host()

    def _find(self, name: str) -> Machine:
        machine = self._machines.get(name)
        if machine is None:
            known = ", ".join(sorted(self._machines)) or "none"
            raise FleetHostNotFoundError(
                f"the fleet has no machine {name!r:.100}", hint=f"it has {known}"
            )
        return machine

    def _note(self) -> None:
        """Note a change, so that all who wait look again."""
        for name, refusal in list(self._refusals.items()):
            capacity = self._machines[name].capacity
            if capacity is not None and (
                capacity.sandboxes < refusal.sandboxes or capacity.free_bytes > refusal.free_bytes
            ):
                del self._refusals[name]
        self._changed.set()
        self._changed = asyncio.Event()
        self._telling.show(self.hosts())

    # Places

    async def reserve(self, need: Need, *, timeout_s: float) -> Reservation:
        """See `BackEnd.reserve`."""
        return await place_within(
            timeout_s,
            need,
            lambda id_: self._attempt(id_, need),
            hosts=self.hosts,
            changed=lambda: self._changed,
            telling=self._telling,
        )

    async def _attempt(self, id_: str, need: Need) -> Attempt:
        self._require_open()
        refused: set[str] = set()
        found = await self._try_all(id_, need, refused)
        refused |= self._refusing(need)
        return Attempt(
            found=found, refused=frozenset(refused), again_s=self._until_asked_again(refused)
        )

    async def _try_all(self, id_: str, need: Need, refused: set[str]) -> Reservation | None:
        """Ask one machine after the other; note in ``refused`` those that refuse."""
        while True:
            found = candidates(self.hosts(), need, refused | self._refusing(need))
            if not found:
                return None
            name = found[0].name
            try:
                return await self._claim(id_, need, self._machines[name])
            except MemoryBudgetError:
                self._refuse(name, need)
                refused.add(name)
            except RemoteError:
                refused.add(name)  # it reports by itself when it is there again

    async def _claim(self, id_: str, need: Need, machine: Machine) -> Reservation:
        self._asking[id_] = (machine.name, need)
        try:
            async with asyncio.timeout(ANSWER_S):
                claim = await machine.claim(id_, need.memory_bytes)
        except TimeoutError:
            self._drop_asking(id_)
            raise RemoteUnreachableError(f"{machine.name} did not answer") from None
        except BaseException:
            self._drop_asking(id_)
            raise
        capacity = machine.capacity
        reservation = Reservation(
            id=id_,
            host=machine.name,
            machine_id=capacity.machine_id if capacity is not None else "",
            need=need,
            made_at=time.time(),
        )
        self._held[id_] = _Held(reservation, claim)
        self._telling.tell(FleetEventKind.PLACED, id=id_, reservation=reservation)
        return reservation

    def _drop_asking(self, id_: str) -> None:
        self._asking.pop(id_, None)
        self._note()

    def _refusing(self, need: Need) -> set[str]:
        """Return the machines that have just refused such a sandbox."""
        now = asyncio.get_running_loop().time()
        return {
            name
            for name, one in self._refusals.items()
            if now < one.until and need.memory_bytes >= one.memory_bytes
        }

    def _refuse(self, name: str, need: Need) -> None:
        capacity = self._machines[name].capacity
        self._refusals[name] = _Refusal(
            need.memory_bytes,
            asyncio.get_running_loop().time() + REFUSED_S,
            capacity.sandboxes if capacity is not None else 0,
            capacity.free_bytes if capacity is not None else 0,
        )

    def _until_asked_again(self, refused: set[str]) -> float:
        """Return the seconds until a machine that has refused may be asked again."""
        now = asyncio.get_running_loop().time()
        times = [one.until - now for name, one in self._refusals.items() if name in refused]
        return max(0.05, min(times, default=REFUSED_S))

    async def confirm(self, reservation: Reservation, sandbox_id: str) -> None:
        """See `BackEnd.confirm`. The machine has counted the sandbox since the beginning of its
        start."""
        held = self._held.pop(reservation.id, None)
        if held is not None:
            held.claim.drop()
            self._drop_asking(reservation.id)

    async def refused(self, reservation: Reservation, why: str) -> None:
        """See `BackEnd.refused`."""
        self._refuse(reservation.host, reservation.need)
        await self.release(reservation)

    async def release(self, reservation: Reservation) -> None:
        """See `BackEnd.release`. A sandbox that has run is counted by its machine."""
        held = self._held.pop(reservation.id, None)
        if held is not None:
            held.claim.drop()
            self._telling.tell(
                FleetEventKind.RELEASED, id=reservation.id, reservation=held.reservation
            )
            self._drop_asking(reservation.id)

    # Draining

    async def drain(self, name: str, *, on: bool = True) -> None:
        """See `BackEnd.drain`."""
        self._find(name)
        await self._drained.set(name, on=on)

    def _require_open(self) -> None:
        if self._is_closed:
            raise FleetError("the fleet is closed", hint="open it anew: Fleet.open()")

    async def close(self) -> None:
        """See `BackEnd.close`."""
        self._is_closed = True
        for held in list(self._held.values()):
            with best_effort("give up a reservation", paths().engine_log):
                await self.release(held.reservation)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        self._note()
        self._telling.close()
