"""What we ask of Ray, and what it says: values, and a Protocol that tests imitate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from quicksand.base.errors import FleetError
from quicksand.fleet.over_ray.cluster_record import MACHINE_ID

PLACE = "place-"
"""What the name of our placement groups begins with; their id and Unix time of expiry follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A placement group: memory that is kept on one machine."""

    id: str
    """32 hex digits; that of the reservation."""
    machine_id: str
    memory_bytes: int
    """With what QEMU needs."""
    expires_at: int
    """Unix time; then its machine releases it if no sandbox has it."""
    is_placed: bool = True
    """False while its machine is away, or has no room."""

    @property
    def name(self) -> str:
        """How Ray calls it."""
        return f"{PLACE}{self.id}-{self.expires_at}"

    @classmethod
    def parse(cls, name: str, machine_id: str, size: int, *, is_placed: bool) -> Place | None:
        """Read what Ray tells of a group; None if it is none of ours."""
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
    """Ray, for us. Any method may raise DeskError."""

    async def machines(self) -> Collection[str]:
        """The machines that Ray takes to be alive, by their ids."""

    async def places(self) -> Sequence[Place]:
        """All placement groups of ours."""

    async def take(self, place: Place, *, timeout_s: float) -> bool:
        """Keep a place, and return whether the machine had room within that time. If not, and after
        an error or a cancellation, it is not kept."""

    async def give_back(self, id_: str) -> None:
        """Give a place back. Idempotent."""

    async def ask(self, machine_id: str, method: str, *args: Any) -> Any:
        """Call a method of the `Host` of a machine that is alive. Raises DeskError if it does not
        answer in time."""


class DeskError(FleetError):
    """Ray did not do what it was asked for."""
