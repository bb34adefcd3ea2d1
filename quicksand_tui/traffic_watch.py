"""Asking guests now and then how much they have received and sent, for rows that somebody sees."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING

from quicksand_tui.guest_network import TrafficMeter, TrafficRates

if TYPE_CHECKING:
    from quicksand.guest_traffic import GuestTraffic

EVERY_S = 4.0
"""Seconds from one question to the next of the same guest, if there are few."""

SPACING_S = 0.25
"""Seconds between two guests: an answer wakes an idle one, which takes some of the host's CPU."""

LOOKER_S = 150.0
"""Seconds after the last look for which somebody is taken to look on: at most every minute
somebody looks (`look_every_s` in the config)."""


class TrafficWatch:
    """`want` is called and ``rates`` read in any thread; `run` is one task on the engine's loop."""

    def __init__(
        self,
        ask: Callable[[str], Awaitable[GuestTraffic | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``ask``: what a sandbox's guest says, None if it does not; it never fails."""
        self._ask = ask
        self._clock, self._sleep = clock, sleep
        self._wanted: frozenset[str] = frozenset()
        self._wanted_until = 0.0
        self._meters: dict[str, TrafficMeter] = {}
        self.rates: Mapping[str, TrafficRates] = {}
        """By sandbox; another object whenever it changes."""

    def want(self, sandbox_ids: Collection[str]) -> None:
        """These are seen now, and no others."""
        self._wanted = frozenset(sandbox_ids)
        self._wanted_until = self._clock() + LOOKER_S

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted) and self._clock() < self._wanted_until

    async def run(self) -> None:
        """Ask one after another, until nobody looks. What is known stays for the next time."""
        for meter in self._meters.values():
            meter.add(None, self._clock())  # what was moved meanwhile was at no one moment
        while self.is_wanted:
            began = self._clock()
            for sandbox_id in sorted(self._wanted):
                if self.is_wanted and sandbox_id in self._wanted:  # still, after those before it
                    await self._look(sandbox_id)
                    await self._sleep(SPACING_S)
            await self._sleep(max(0.0, began + EVERY_S - self._clock()))

    async def _look(self, sandbox_id: str) -> None:
        traffic = await self._ask(sandbox_id)
        # One that scrolls out of sight and comes back begins anew.
        self._meters = {id_: m for id_, m in self._meters.items() if id_ in self._wanted}
        self._meters.setdefault(sandbox_id, TrafficMeter()).add(traffic, self._clock())
        self.rates = {id_: m.rates for id_, m in self._meters.items() if m.rates is not None}
