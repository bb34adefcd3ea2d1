"""The times since when guests do not answer, and the rates of their network.

For silences no guest is asked: the answers to other questions tell them, and keys typed without an
echo. For rates guests are asked every few seconds, while somebody looks.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quicksand.things.sandbox_facts import TrafficRates

from quicksand_tui.model.shown_sandboxes import SILENT_S, TrafficMeter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from quicksand.things.sandbox_facts import GuestTraffic

    from quicksand_tui.model.world import World


T = TypeVar("T")

ASKED_S = 15.0
"""Seconds after the last question for which a silence is known: nobody asks a guest that is out of
sight, so nobody hears it either."""


class _Silence(NamedTuple):
    """The times of a silence, both in Unix time."""

    since: float
    asked: float


class Silences:
    """The silences of guests, by sandbox. `heed` is for one loop; any thread may call `known`."""

    def __init__(
        self, changed: Callable[[], None], *, clock: Callable[[], float] = time.time
    ) -> None:
        """``changed`` is called, on the loop, when a guest falls silent or answers again."""
        self._changed = changed
        self._clock = clock
        self._all: Mapping[str, _Silence] = {}
        """The silences by sandbox. Replaced whenever they change, never modified."""
        self._asking: Counter[str] = Counter()
        """The number of answers that each guest still owes."""

    def known(self) -> Mapping[str, float]:
        """Returns the Unix times since when guests are silent."""
        heard_of = self._clock() - ASKED_S
        return {
            id_: one.since
            for id_, one in self._all.items()
            if one.asked > heard_of or self._asking[id_]
        }

    async def heed(self, sandbox_id: str, answer: Awaitable[T], *, waited_s: float = 0.0) -> T:
        """Returns the answer of a guest. Until it comes, the guest counts as silent after
        `SILENT_S`, of which ``waited_s`` have passed before. Raises the errors of ``answer``, which
        tell nothing of a silence."""
        began = self._clock() - waited_s
        self._asking[sandbox_id] += 1
        loop = asyncio.get_running_loop()
        timer = loop.call_later(
            max(0.0, SILENT_S - waited_s), lambda: self._note(sandbox_id, began)
        )
        try:
            found = await answer
        finally:
            timer.cancel()
            if sandbox_id in self.known():
                self._note(sandbox_id, began)  # the answer was waited for until now
            self._asking = self._asking - Counter((sandbox_id,))  # drops counts of 0
        if sandbox_id in self._all:
            self._all = {id_: one for id_, one in self._all.items() if id_ != sandbox_id}
            self._changed()
        return found

    def _note(self, sandbox_id: str, since: float) -> None:
        known = self.known().get(sandbox_id)
        silence = _Silence(since if known is None else known, self._clock())
        self._all = {**self._all, sandbox_id: silence}
        if known is None:
            self._changed()


def with_silences(world: World, silences: Mapping[str, float]) -> World:
    """Returns the world with the known silences of its sandboxes."""
    if not silences:
        return world
    views = tuple(
        replace(view, silent_since=silences[view.id])
        if view.id in silences and view.silent_since is None
        else view
        for view in world.sandboxes
    )
    return replace(world, sandboxes=views)


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
