"""What a fleet is, for all who use one, and for the back ends that make one.

Sizes are bytes, times Unix seconds, durations seconds. All values are frozen; texts that come from
other machines are bounded and clean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quicksand.hosted.host import RemoteHost


class HostState(StrEnum):
    """What a machine of a fleet is good for now."""

    READY = "ready"
    """It takes new sandboxes, as far as it has room."""
    DRAINING = "draining"
    """It takes no new ones; some still run there."""
    DRAINED = "drained"
    """It takes no new ones, and none runs there."""
    UNREACHABLE = "unreachable"
    """It does not answer, or has not answered yet. Its sandboxes may well run on."""
    UNFIT = "unfit"
    """It answers, but cannot be used: `FleetHost.why` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHost:
    """A machine of a fleet. While it is away, its figures are those that it told last."""

    name: str
    """Its name in the fleet."""
    machine_id: str = ""
    """32 hex digits that are in its data directory; "" while that is not known."""
    address: str = ""
    state: HostState
    since: float | None = None
    """When its state was seen to change; None if that is not known."""
    why: str = ""
    """Why it is UNREACHABLE or UNFIT."""
    cpus: int = 0
    memory_bytes: int = 0
    """What all its sandboxes together may have."""
    free_bytes: int = 0
    """What a new sandbox may still have there, QEMU's own need included; less what is reserved."""
    reserved_bytes: int = 0
    """What is reserved there for sandboxes that do not run yet, as far as this fleet knows."""
    sandboxes: int = 0
    """How many run there, whoever started them."""
    images: tuple[str, ...] = ()
    """The names of the images that it has."""

    @property
    def takes_new(self) -> bool:
        """Whether new sandboxes may be placed there."""
        return self.state is HostState.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What a sandbox needs of a machine."""

    memory_bytes: int
    """Of the guest; a back end adds `quicksand.base.memory.OVERHEAD` for QEMU."""
    cpus: int = 1
    image: str | None = None
    """Machines that have the image of this name are preferred."""
    on: str | None = None
    """The only machine that will do; None if any does."""
    but: str | None = None
    """A machine that will not do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """A place for one sandbox on one machine."""

    id: str
    """32 hex digits."""
    host: str
    """The name of the machine."""
    machine_id: str
    need: Need
    made_at: float
    expires_at: float | None = None
    """When it ends by itself unless it was confirmed; None if it lasts until it is released."""


class Lack(StrEnum):
    """Why a sandbox was not placed on a machine."""

    MEMORY = "memory"
    DRAINED = "drained"
    UNREACHABLE = "unreachable"
    UNFIT = "unfit"
    REFUSED = "refused"
    """By its own figures it has room, but it has refused just such a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLack:
    """What one machine lacks for a sandbox."""

    host: str
    lack: Lack
    free_bytes: int | None = None
    """With MEMORY: what is free there."""
    why: str = ""


class FleetEventKind(StrEnum):
    """What has happened in a fleet."""

    HOST = "host"
    """A machine has changed; `FleetEvent.host` is as it is now."""
    HOST_GONE = "host gone"
    """A machine is no longer part of the fleet; `FleetEvent.host` is as it was last."""
    WAITING = "waiting"
    """A sandbox waits for a place."""
    PLACED = "placed"
    """It has a place: there is a reservation."""
    GAVE_UP = "gave up"
    """It waits no longer, and has no place."""
    RELEASED = "released"
    """A reservation has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """Something that has happened in a fleet, as far as this program knows of it."""

    kind: FleetEventKind
    at: float
    host: FleetHost | None = None
    """With HOST and HOST_GONE."""
    id: str = ""
    """With the others: tells one request from another. It becomes `Reservation.id`."""
    need: Need | None = None
    """With WAITING and GAVE_UP."""
    reservation: Reservation | None = None
    """With PLACED and RELEASED."""


class BackEnd(Protocol):
    """How a fleet knows its machines and keeps places on them. One object belongs to one event
    loop. All methods but `hosts`, `host` and `watch` may raise FleetError.

    A sandbox is placed so: `reserve`, start it on `host(reservation.host)`, then `confirm`. If the
    machine has refused it for want of memory, `refused`, and `reserve` again. When it has ended,
    `release`. A program that is killed in between leaves nothing behind for long.
    """

    def hosts(self) -> Sequence[FleetHost]:
        """All machines, by name, as they are known at this moment. Asks nobody."""

    async def reserve(self, need: Need, *, timeout_s: float) -> Reservation:
        """Keep a place, waiting for one at most so long. Raises FleetFullError, whose ``lacks`` say
        what each machine lacks. After that, and after a cancellation, nothing is reserved."""

    async def confirm(self, reservation: Reservation, sandbox_id: str) -> None:
        """Say that the sandbox runs: from now on its machine counts it itself."""

    async def refused(self, reservation: Reservation, why: str) -> None:
        """Release a place since the machine has no memory for that sandbox after all. It does not
        get such a one again before something has ended there, or some seconds have passed."""

    async def release(self, reservation: Reservation) -> None:
        """Give a place back. Idempotent; does not raise if the machine is away."""

    def watch(self) -> AsyncIterator[FleetEvent]:
        """Yield first a HOST for each machine, then what happens, until the back end is closed.
        Events may be dropped for who reads too slowly, but the last one of each machine is not."""

    async def drain(self, name: str, *, on: bool = True) -> None:
        """Place nothing new on a machine, or do so again. It lasts, and holds for all programs of
        this user that use the fleet. Raises FleetHostNotFoundError."""

    def host(self, name: str) -> RemoteHost:
        """The machine, to make sandboxes there. Raises FleetHostNotFoundError."""

    async def close(self) -> None:
        """Let go of all connections, and of reservations that are not confirmed. Idempotent."""
