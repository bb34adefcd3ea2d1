"""The back end over Ray (`BackEnd`).

It chooses the machine itself, since Ray does not know which machine has which image, and asks Ray
to keep memory on that machine. If two programs want the last of the memory, one gets it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from quicksand import RemoteHost
from quicksand.errors import FleetError, FleetHostNotFoundError
from quicksand.extending import ForeignValueError, Remedy, Words, best_effort, decode, paths

from quicksand_fleet.capacity import Capacity
from quicksand_fleet.drained import Drained
from quicksand_fleet.interface import (
    FleetEvent,
    FleetEventKind,
    FleetHost,
    HostState,
    Need,
    Reservation,
)
from quicksand_fleet.over_ray.desk import DeskError, Place
from quicksand_fleet.over_ray.desk_client import State
from quicksand_fleet.placing import candidates, wanted_bytes
from quicksand_fleet.telling import Telling
from quicksand_fleet.waiting import Attempt, place_within

TAKE_S = 2.0
"""Seconds in which Ray must keep a place, or say that it has no room; it takes 2 to 10 ms."""
UNUSED_S = 900.0
"""Seconds after which a place that no sandbox has taken is released: a start may build an image."""
REFUSED_S = 5.0
"""Seconds for which a machine that has refused a sandbox is not asked again for one of that
size."""
TRIES = 3
"""The number of attempts to tell a machine which sandbox has its place."""


class Client(Protocol):
    """The part of `DeskClient` that is needed here."""

    state: State

    async def run(self) -> None: ...
    async def take(self, place: Place, *, timeout_s: float) -> bool: ...
    async def give_back(self, id_: str) -> None: ...
    async def ask(self, machine_id: str, method: str, *args: Any) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A machine of the fleet."""

    machine_id: str
    name: str
    address: str


class OverRay:
    """A fleet of machines whose places Ray keeps."""

    def __init__(
        self,
        make: Callable[[Callable[[], None]], Client],
        members: Sequence[Member],
        read_drained: Callable[[], frozenset[str]],
        write_drained: Callable[[str, bool], None],
        place: Path | None = None,
    ) -> None:
        """``make`` makes the way to Ray, and is given a function to call when Ray's state has
        changed. ``members`` are known from the start; other machines announce themselves. ``place``
        is the directory in which other programs may change which machines are drained."""
        self._members = {one.machine_id: one for one in members}
        self._drained = Drained(read_drained, write_drained, self._wake)
        self._seen: dict[str, tuple[HostState, str, float | None]] = {}
        """The state of each machine, its reason, and the time since when it has it."""
        self._asking: dict[str, tuple[str, int]] = {}
        """The machine and bytes of each place that Ray is being asked for, or does not show yet."""
        self._held: dict[str, Reservation] = {}
        """The reservations that are not confirmed."""
        self._refused: dict[str, tuple[float, int]] = {}
        """By machine: until when, by the loop's clock, it is not asked for so many bytes."""
        self._changed = asyncio.Event()
        self._telling = Telling()
        self._is_closed = False
        self._client = make(self._note)
        self._running = [asyncio.create_task(self._client.run(), name="quicksand-fleet")]
        if place is not None:
            self._running.append(
                asyncio.create_task(self._drained.follow(place), name="quicksand-fleet-drained")
            )

    # What is known

    def hosts(self) -> Sequence[FleetHost]:
        """See `BackEnd.hosts`."""
        return sorted(map(self._view, self._members.values()), key=lambda host: host.name)

    def _view(self, member: Member) -> FleetHost:
        id_ = member.machine_id
        state, why, since = self._seen.get(
            id_, (HostState.UNREACHABLE, "Ray has not answered", None)
        )
        look = self._client.state.looks.get(id_, {})
        capacity = _capacity_of(look)
        if capacity is None:
            return FleetHost(
                name=member.name,
                machine_id=id_,
                address=member.address,
                state=state,
                since=since,
                why=why,
            )
        reserved = self._reserved(id_, frozenset(look["kept"]))
        if state is HostState.READY and member.name in self._drained.names:
            is_empty = not capacity.sandboxes and not reserved
            state = HostState.DRAINED if is_empty else HostState.DRAINING
        return FleetHost(
            name=member.name,
            machine_id=id_,
            address=member.address,
            state=state,
            since=since,
            why=why,
            cpus=capacity.cpus,
            memory_bytes=capacity.memory_bytes,
            free_bytes=max(0, capacity.free_bytes - reserved),
            reserved_bytes=reserved,
            sandboxes=capacity.sandboxes,
            images=tuple(capacity.images),
        )

    def _reserved(self, machine_id: str, kept: frozenset[str]) -> int:
        """Return the bytes reserved there for sandboxes that the machine does not count yet."""
        told = {one.id for one in self._client.state.places}
        places = [one for one in self._client.state.places if one.machine_id == machine_id]
        untold = [
            size
            for id_, (where, size) in self._asking.items()
            if where == machine_id and id_ not in told
        ]
        return sum(one.memory_bytes for one in places if one.id not in kept) + sum(untold)

    def watch(self) -> AsyncIterator[FleetEvent]:
        """See `BackEnd.watch`."""
        return self._telling.watch()

    def host(self, name: str) -> RemoteHost:
        """See `BackEnd.host`."""
        return RemoteHost(self._find(name).address, asks=False)

    def _find(self, name: str) -> Member:
        for member in self._members.values():
            if member.name == name:
                return member
        known = ", ".join(sorted(one.name for one in self._members.values())) or "none"
        raise FleetHostNotFoundError(
            f"the fleet has no machine {name!r:.100}", hint=f"it has {known}"
        )

    def _note(self) -> None:
        """Note a change, so that all who wait look again."""
        state = self._client.state
        for id_, look in state.looks.items():
            if id_ not in self._members and look.get("name") and look.get("address"):
                self._members[id_] = Member(
                    machine_id=id_, name=str(look["name"])[:63], address=str(look["address"])
                )
        for id_ in self._members:
            self._see(id_, state)
        told = {one.id for one in state.places}
        self._asking = {
            id_: found
            for id_, found in self._asking.items()
            if id_ not in told or id_ not in self._held
        }
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
        self._telling.show(self.hosts())

    def _see(self, id_: str, state: State) -> None:
        look = state.looks.get(id_, {})
        if state.error:
            found, why = HostState.UNREACHABLE, state.error
        elif id_ not in state.alive:
            found, why = HostState.UNREACHABLE, "Ray does not reach it; its sandboxes may run on"
        elif "error" in look:
            found, why = HostState.UNREACHABLE, str(look["error"])
        elif not look:
            return  # the machine has not been asked yet
        elif _capacity_of(look) is None:
            found, why = HostState.UNFIT, "it tells what makes no sense"
        else:
            found, why = HostState.READY, ""
        before = self._seen.get(id_)
        is_new = before is None or before[0] is not found
        self._seen[id_] = (found, why, time.time() if is_new or before is None else before[2])

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
        found = await self._try_all(id_, need)
        return Attempt(found=found, refused=frozenset(self._refusing(need)), again_s=REFUSED_S)

    async def _try_all(self, id_: str, need: Need) -> Reservation | None:
        """Ask one machine after the other for a place."""
        while found := candidates(self.hosts(), need, self._refusing(need)):
            host = found[0]
            now = time.time()
            place = Place(
                id=id_,
                machine_id=host.machine_id,
                memory_bytes=wanted_bytes(need),
                expires_at=int(now + UNUSED_S),
            )
            if await self._take(place):
                reservation = Reservation(
                    id=id_,
                    host=host.name,
                    machine_id=host.machine_id,
                    need=need,
                    made_at=now,
                    expires_at=now + UNUSED_S,
                )
                self._held[id_] = reservation
                self._telling.tell(FleetEventKind.PLACED, id=id_, reservation=reservation)
                return reservation
            self._refuse(host.name, need)
        return None

    async def _take(self, place: Place) -> bool:
        """Ask Ray for a place on a machine. Raises FleetError if Ray cannot be asked."""
        self._asking[place.id] = (place.machine_id, place.memory_bytes)
        is_taken = False
        try:
            is_taken = await self._client.take(place, timeout_s=TAKE_S)
        except DeskError as error:
            raise _away(error) from error
        finally:
            if not is_taken:
                self._asking.pop(place.id, None)
                self._wake()
        return is_taken

    def _refusing(self, need: Need) -> set[str]:
        now = asyncio.get_running_loop().time()
        return {
            name
            for name, (until, size) in self._refused.items()
            if now < until and need.memory_bytes >= size
        }

    def _refuse(self, name: str, need: Need) -> None:
        until = asyncio.get_running_loop().time() + REFUSED_S
        self._refused[name] = (until, need.memory_bytes)

    async def confirm(self, reservation: Reservation, sandbox_id: str) -> None:
        """See `BackEnd.confirm`: the place lasts as long as the sandbox runs."""
        args = (reservation.id, sandbox_id, reservation.need.memory_bytes)
        for attempt in range(1, TRIES + 1):
            try:
                await self._client.ask(reservation.machine_id, "bind", *args)
                break
            except DeskError as error:
                if attempt == TRIES:
                    raise _away(error) from error
        self._held.pop(reservation.id, None)

    async def refused(self, reservation: Reservation, why: str) -> None:
        """See `BackEnd.refused`."""
        self._refuse(reservation.host, reservation.need)
        await self.release(reservation)

    async def release(self, reservation: Reservation) -> None:
        """See `BackEnd.release`. If the machine cannot be told now, it finds out by itself."""
        self._held.pop(reservation.id, None)
        self._asking.pop(reservation.id, None)
        with best_effort("give back a place", paths().engine_log):
            await self._client.give_back(reservation.id)
        with best_effort("forget a place", paths().engine_log):
            await self._client.ask(reservation.machine_id, "drop", reservation.id)
        self._telling.tell(FleetEventKind.RELEASED, id=reservation.id, reservation=reservation)
        self._wake()

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
        for reservation in list(self._held.values()):
            await self.release(reservation)
        for task in self._running:
            task.cancel()
        await asyncio.wait(self._running)
        self._wake()
        self._telling.close()


def _capacity_of(look: Mapping[str, Any]) -> Capacity | None:
    """Return the last report of a machine; None if there is none, or if it makes no sense."""
    try:
        found: Capacity = decode(look["capacity"], Capacity)
    except (KeyError, ForeignValueError):
        return None
    return found if isinstance(look.get("kept"), list) else None


def _away(error: DeskError) -> FleetError:
    return FleetError(
        f"Ray did not keep a place: {error}",
        hint=Words(Remedy("fleet_status"), " shows the machines; sandboxes run on without Ray"),
    )
