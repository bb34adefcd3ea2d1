"""Asks the guests of visible rows for their network traffic now and then."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.model.shown_sandboxes import TrafficMeter, TrafficRates

if TYPE_CHECKING:
    from quicksand.guest.network import GuestTraffic

    from quicksand_tui.model.world import World


EVERY_S = 4.0
"""The least seconds between two questions to the same guest."""

SPACING_S = 0.25
"""Seconds between questions to two guests: answering wakes an idle guest, which costs CPU."""

HELD_UP_S = 0.2
"""Seconds after which the next guest is asked though one has not answered, so that a silent guest
holds up nobody."""

LOOKER_S = 150.0
"""Seconds after the last look before the asking ends: the app looks at least once a minute
(``look_every_s`` in the config)."""


class TrafficWatch:
    """Measures the traffic of wanted guests. `want` and ``rates`` may be used in any thread; `run`
    is one task on the engine's loop."""

    def __init__(
        self,
        ask: Callable[[str], Awaitable[GuestTraffic | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """``ask`` returns the report of a guest, or None; it must not raise."""
        self._ask = ask
        self._clock, self._sleep = clock, sleep
        self._wanted: frozenset[str] = frozenset()
        self._wanted_until = 0.0
        self._meters: dict[str, TrafficMeter] = {}
        self._unanswered: dict[str, asyncio.Task[None]] = {}
        self.rates: Mapping[str, TrafficRates] = {}
        """The rates by sandbox; replaced whenever they change, never modified."""

    def want(self, sandbox_ids: Collection[str]) -> None:
        """Sets the sandboxes that are visible now."""
        self._wanted = frozenset(sandbox_ids)
        self._wanted_until = self._clock() + LOOKER_S

    @property
    def is_wanted(self) -> bool:
        return bool(self._wanted) and self._clock() < self._wanted_until

    async def run(self) -> None:
        """Asks one guest after another until nobody looks; the rates stay for the next time."""
        for meter in self._meters.values():
            meter.add(None, self._clock())  # traffic during the pause would look like one burst
        try:
            await self._ask_in_turn()
        finally:
            for task in self._unanswered.values():
                task.cancel()
            await asyncio.gather(*self._unanswered.values(), return_exceptions=True)
            self._unanswered.clear()

    async def _ask_in_turn(self) -> None:
        while self.is_wanted:
            began = self._clock()
            for sandbox_id in sorted(self._wanted):
                if self.is_wanted and sandbox_id in self._wanted:  # may have changed meanwhile
                    if sandbox_id not in self._unanswered:
                        await self._begin(sandbox_id)
                    await self._sleep(SPACING_S)
            await self._sleep(max(0.0, began + EVERY_S - self._clock()))

    async def _begin(self, sandbox_id: str) -> None:
        """Asks a guest, and waits for its answer, but not for long."""
        task = asyncio.create_task(self._look(sandbox_id), name="quicksand-traffic-of")
        self._unanswered[sandbox_id] = task
        task.add_done_callback(lambda _: self._unanswered.pop(sandbox_id, None))
        await asyncio.wait((task,), timeout=HELD_UP_S)

    async def _look(self, sandbox_id: str) -> None:
        traffic = await self._ask(sandbox_id)
        # A sandbox that scrolls out of sight and back starts with a new history.
        self._meters = {id_: m for id_, m in self._meters.items() if id_ in self._wanted}
        self._meters.setdefault(sandbox_id, TrafficMeter()).add(traffic, self._clock())
        self.rates = {id_: m.rates for id_, m in self._meters.items() if m.rates is not None}


def with_traffic(world: World, rates: Mapping[str, TrafficRates]) -> World:
    """Returns the world with the rates of its sandboxes."""
    if not rates:
        return world
    views = tuple(
        replace(view, traffic=rates[view.id]) if view.id in rates else view
        for view in world.sandboxes
    )
    return replace(world, sandboxes=views)
