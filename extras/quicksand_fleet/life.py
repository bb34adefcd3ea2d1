"""A sandbox of a fleet: `start` finds a place for it, and from then on it is a sandbox of that
machine.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

from quicksand import SandboxConfig
from quicksand.errors import MemoryBudgetError
from quicksand.extending import ENDING_METHODS, MAKING_METHODS, FarLife, Known, Progress, paths

from quicksand_fleet.desk import Desk, SharedDesks
from quicksand_fleet.interface import Need, Reservation
from quicksand_fleet.keeping.running import ensure_coordinator

CLONES_MAX = 1000
"""The most clones that one call makes (`Sandbox.clone`)."""
Prepare = Callable[[str], Awaitable[None]]


class FleetLife(FarLife):
    """A sandbox whose machine the fleet chooses when it starts."""

    def __init__(
        self,
        fleet: Desk | None,
        known: Known,
        opening: dict[str, Any],
        *,
        progress: Progress | None = None,
        prepare: Prepare | None = None,
        wait_s: float | None = None,
        but: str | None = None,
    ) -> None:
        """Without ``fleet`` the sandbox uses the one that this program shares. ``prepare`` is
        awaited with the name of the chosen machine before anything is done there. ``wait_s``:
        seconds to wait for a place, if not those of the fleet; ``but``: a machine to avoid."""
        super().__init__(None, known, opening, progress=progress)
        self._prepare = prepare
        self._wait_s = wait_s
        self._but = but
        self._fleet = fleet
        self._shared_fleet: Desk | None = None
        """The shared one, while it is used."""
        self._make = opening
        self._reservation: Reservation | None = None
        self.last_place: str | None = None
        """The machine where it was placed last."""

    @property
    def where(self) -> str | None:
        """See `FarLife.where`."""
        return None if self._reservation is None else self._reservation.host

    def _opened(self) -> Desk:
        if self._fleet is not None:
            return self._fleet
        if self._shared_fleet is None:
            self._shared_fleet = SharedDesks.use()
        return self._shared_fleet

    async def start(self, at: str | None) -> None:
        """See `Sandbox.start`. Raises FleetError, too."""
        if self.last_place is not None and self.is_there:
            await self._start_again(self.last_place, at)
            return
        fleet = self._opened()
        loop = asyncio.get_running_loop()
        wait_s = fleet.wait_s if self._wait_s is None else self._wait_s
        deadline = loop.time() + wait_s
        await ensure_coordinator(paths())
        need = replace(need_of(self.known.config), but=self._but)
        while True:
            reservation = await fleet.reserve(need, timeout_s=max(0.0, deadline - loop.time()))
            if await self._start_on(fleet, reservation, at):
                return

    async def _start_again(self, place: str, at: str | None) -> None:
        """Start the sandbox again where its disk is, as soon as there is room."""
        fleet = self._opened()
        async with self._places(place, 1) as [reservation]:
            if not self._is_held:
                self._handle = reservation.id  # so the machine knows for which sandbox that is
            await super().start(at)
            await fleet.confirm(reservation, self.known.id)
            self._reservation = reservation

    @contextlib.asynccontextmanager
    async def _places(self, place: str, count: int) -> AsyncIterator[list[Reservation]]:
        """Hold places on one machine within the block. Raises FleetFullError, MemoryBudgetError."""
        fleet = self._opened()
        need = replace(need_of(self.known.config), on=place)
        deadline = asyncio.get_running_loop().time() + fleet.wait_s
        held: list[Reservation] = []
        try:
            for _ in range(count):
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                held.append(await fleet.reserve(need, timeout_s=left))
            yield held
        finally:
            for reservation in held:
                if reservation is not self._reservation:
                    await fleet.release(reservation)

    async def _start_on(self, fleet: Desk, reservation: Reservation, at: str | None) -> bool:
        """Start the sandbox there; return whether that machine had the memory. Raises as
        `start`."""
        self._opening = self._make
        self.put_on(fleet.host(reservation.host), reservation.id)
        self._reservation, self.last_place = reservation, reservation.host
        try:
            if self._prepare is not None:
                await self._prepare(reservation.host)
            await super().start(at)
            await fleet.confirm(reservation, self.known.id)
        except MemoryBudgetError as error:
            self._forget_place()
            await fleet.refused(reservation, str(error))
            return False
        except BaseException:
            self._forget_place()
            await fleet.release(reservation)
            raise
        return True

    def _forget_place(self) -> None:
        self._reservation = None
        self.put_on(None)

    async def call(self, name: str, *args: Any, wanted: Any = None, **keywords: Any) -> Any:
        """See `FarLife.call`. Clones get places on their machine before they are made."""
        if (
            name in MAKING_METHODS
            and self.last_place is not None
            and type(args[0]) is int
            and args[0] > 0
        ):
            async with self._places(self.last_place, min(args[0], CLONES_MAX)):
                return await super().call(name, *args, wanted=wanted, **keywords)
        found = await super().call(name, *args, wanted=wanted, **keywords)
        if name in ENDING_METHODS and self._reservation is not None:
            await self._opened().release(self._reservation)
        return found

    async def leave(self) -> None:
        """See `FarLife.leave`."""
        await super().leave()
        if self._reservation is not None and not self.known.exists:
            await self._opened().release(self._reservation)
        if self._shared_fleet is not None:
            shared, self._shared_fleet = self._shared_fleet, None
            await SharedDesks.leave(shared)


def need_of(config: SandboxConfig) -> Need:
    """Return the needs of a sandbox when it is placed."""
    return Need(memory_bytes=config.memory_bytes, cpus=config.cpus, image=config.image)
