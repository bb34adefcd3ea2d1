"""The interface of a fleet: for its users, and for the back ends that implement it.

Sizes are bytes, times Unix seconds, durations seconds. All values are frozen; texts that come from
other machines are bounded and clean.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from quicksand import RemoteHost


class HostState(StrEnum):
    """The readiness of a machine of a fleet."""

    READY = "ready"
    """The machine takes new sandboxes, as far as it has room."""
    DRAINING = "draining"
    """The machine takes no new sandboxes; some still run there."""
    DRAINED = "drained"
    """The machine takes no new sandboxes, and none runs there."""
    UNREACHABLE = "unreachable"
    """The machine does not answer, or has not answered yet. Its sandboxes may well run on."""
    UNFIT = "unfit"
    """The machine answers, but cannot be used: `FleetHost.why` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetHost:
    """A machine of a fleet. While it is away, its figures are the last that it reported."""

    name: str
    """Its name in the fleet."""
    machine_id: str = ""
    """The id in its data directory, 32 hex digits; "" while unknown."""
    address: str = ""
    state: HostState
    since: float | None = None
    """Unix time at which its state was seen to change; None if unknown."""
    why: str = ""
    """Why it is UNREACHABLE or UNFIT."""
    cpus: int = 0
    memory_bytes: int = 0
    """Bytes that all its sandboxes together may have."""
    free_bytes: int = 0
    """Bytes that a new sandbox may still have there, including QEMU's own need, less
    reservations."""
    reserved_bytes: int = 0
    """Bytes reserved there for sandboxes that do not run yet, as far as this fleet knows."""
    sandboxes: int = 0
    """The number of sandboxes that run there, whoever started them."""
    images: tuple[str, ...] = ()
    """The names of the images that it has."""

    @property
    def takes_new(self) -> bool:
        """Whether new sandboxes may be placed there."""
        return self.state is HostState.READY


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The needs of a sandbox when it is placed."""

    memory_bytes: int
    """Bytes of the guest; a back end adds `quicksand.base.capacity.OVERHEAD` for QEMU."""
    cpus: int = 1
    image: str | None = None
    """The name of the image; machines that have it are preferred."""
    on: str | None = None
    """The only machine that may be used; None for any."""
    but: str | None = None
    """A machine that must not be used."""


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
    """Unix time at which the reservation ends by itself unless it was confirmed; None if it lasts
    until it is released."""


class Lack(StrEnum):
    """The reason why a sandbox was not placed on a machine."""

    MEMORY = "memory"
    DRAINED = "drained"
    UNREACHABLE = "unreachable"
    UNFIT = "unfit"
    REFUSED = "refused"
    """Its figures show room, but it has just refused a sandbox of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLack:
    """The reason why one machine was not chosen for a sandbox."""

    host: str
    lack: Lack
    free_bytes: int | None = None
    """With MEMORY: the bytes that are free there."""
    why: str = ""


class FleetEventKind(StrEnum):
    """The kind of an event in a fleet."""

    HOST = "host"
    """A machine has changed; `FleetEvent.host` is its new state."""
    HOST_GONE = "host gone"
    """A machine is no longer part of the fleet; `FleetEvent.host` is its last state."""
    WAITING = "waiting"
    """A sandbox waits for a place."""
    PLACED = "placed"
    """A sandbox has a place: there is a reservation."""
    GAVE_UP = "gave up"
    """A sandbox has stopped waiting and has no place."""
    RELEASED = "released"
    """A reservation has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetEvent:
    """Something that has happened in a fleet, as far as this program knows of it."""

    kind: FleetEventKind
    at: float
    host: FleetHost | None = None
    """The machine, with HOST and HOST_GONE."""
    id: str = ""
    """The id of the request, with the other kinds. It becomes `Reservation.id`."""
    need: Need | None = None
    """The needs of the sandbox, with WAITING and GAVE_UP."""
    reservation: Reservation | None = None
    """The reservation, with PLACED and RELEASED."""


class BackEnd(Protocol):
    """How a fleet knows its machines and keeps places on them. One object belongs to one event
    loop. All methods but `hosts`, `host` and `watch` may raise FleetError.

    To place a sandbox, call `reserve`, start it on `host(reservation.host)`, then call `confirm`.
    If the machine refuses it for lack of memory, call `refused`, and `reserve` again. When it has
    ended, call `release`. A program that is killed in between leaves nothing behind for long.
    """

    def hosts(self) -> Sequence[FleetHost]:
        """Return all machines as they are known at this moment, by name, without asking any of
        them."""

    async def reserve(self, need: Need, *, timeout_s: float) -> Reservation:
        """Reserve a place, waiting at most so long. Raises FleetFullError, whose ``lacks`` say what
        each machine lacks. After an error or a cancellation nothing is reserved."""

    async def confirm(self, reservation: Reservation, sandbox_id: str) -> None:
        """Report that the sandbox runs: from now on its machine counts it itself."""

    async def refused(self, reservation: Reservation, why: str) -> None:
        """Release a place because the machine has no memory for that sandbox after all. The machine
        is not asked again for such a sandbox until something has ended there or some seconds have
        passed."""

    async def release(self, reservation: Reservation) -> None:
        """Give a place back. Idempotent; does not raise if the machine is away."""

    def watch(self) -> AsyncIterator[FleetEvent]:
        """Yield one HOST for each machine, then every event, until the back end is closed. A slow
        reader may miss events, but never the last one of a machine."""

    async def drain(self, name: str, *, on: bool = True) -> None:
        """Drain a machine, so that nothing new is placed there, or end that. The setting lasts, and
        holds for all programs of this user that use the fleet. Raises FleetHostNotFoundError."""

    def host(self, name: str) -> RemoteHost:
        """The machine, to make sandboxes there. Raises FleetHostNotFoundError."""

    async def close(self) -> None:
        """Close all connections, and release reservations that are not confirmed. Idempotent."""
