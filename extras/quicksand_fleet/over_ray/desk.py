"""The requests that we make of Ray, and its answers: values, and a Protocol that tests imitate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from quicksand.errors import FleetError

from quicksand_fleet.over_ray.cluster_record import MACHINE_ID

PLACE = "place-"
"""The beginning of the names of our placement groups; id and Unix time of expiry follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A placement group: memory that is kept on one machine."""

    id: str
    """The id of the reservation, 32 hex digits."""
    machine_id: str
    memory_bytes: int
    """Bytes including QEMU's need."""
    expires_at: int
    """Unix time at which its machine releases it if no sandbox has it."""
    is_placed: bool = True
    """Whether the place is kept; False while its machine is away, or has no room."""

    @property
    def name(self) -> str:
        """Return Ray's name of the place."""
        return f"{PLACE}{self.id}-{self.expires_at}"

    @classmethod
    def parse(cls, name: str, machine_id: str, size: int, *, is_placed: bool) -> Place | None:
        """Parse Ray's description of a group; None if it is none of ours."""
        id_, _, expires = name.removeprefix(PLACE).partition("-")
        if not name.startswith(PLACE) or not MACHINE_ID.fullmatch(id_) or not expires.isdecimal():
            return None
        return cls(
            id=id_,
            machine_id=machine_id,
            memory_bytes=size,
            expires_at=int(expires),
            is_placed=is_placed,
        )


class Desk(Protocol):
    """Ray, as we use it. Any method may raise DeskError."""

    async def machines(self) -> Collection[str]:
        """Return the ids of the machines that Ray takes to be alive."""

    async def places(self) -> Sequence[Place]:
        """Return all our placement groups."""

    async def take(self, place: Place, *, timeout_s: float) -> bool:
        """Keep a place, and return whether the machine had room within that time. If it had none,
        and after an error or a cancellation, nothing is kept."""

    async def give_back(self, id_: str) -> None:
        """Give a place back. Idempotent."""

    async def ask(self, machine_id: str, method: str, *args: Any) -> Any:
        """Call a method of the `Host` of a live machine. Raises DeskError if it does not answer in
        time."""


class DeskError(FleetError):
    """Raised when Ray did not do what it was asked."""
