"""The times since when guests do not answer.

No guest is asked for this: the answers to other questions tell it, and keys typed without an echo.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from quicksand_tui.model.shown_sandboxes import SILENT_S

if TYPE_CHECKING:
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
