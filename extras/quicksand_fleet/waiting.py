"""How a sandbox waits for a place, and how other programs see it waiting."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from quicksand.extending import best_effort, paths

from quicksand_fleet.interface import FleetEventKind, FleetHost, Need, Reservation
from quicksand_fleet.placing import can_ever_fit, full_error, lacks_of
from quicksand_fleet.telling import Telling
from quicksand_fleet.waiting_list import WaitingList

SEEN_AFTER_S = 0.2
"""Seconds after which a sandbox counts as waiting: most have a place at once."""


@contextlib.asynccontextmanager
async def seen_waiting() -> AsyncIterator[None]:
    """Show this sandbox as waiting within the block, if the block takes long enough."""
    waiting = asyncio.create_task(_wait(WaitingList(paths())), name="quicksand-waiting")
    try:
        yield
    finally:
        waiting.cancel()
        await asyncio.wait([waiting])


async def _wait(waiting: WaitingList) -> None:
    await asyncio.sleep(SEEN_AFTER_S)
    with best_effort("show that a sandbox waits", paths().engine_log):
        joining = asyncio.create_task(asyncio.to_thread(waiting.join))
        try:
            await asyncio.shield(joining)
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(waiting.leave, *await joining)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The outcome of asking all machines that may have room."""

    found: Reservation | None
    refused: frozenset[str] = frozenset()
    """Machines that have just refused such a sandbox."""
    again_s: float
    """Seconds after which they may be asked again even without a change."""


async def place_within(
    timeout_s: float,
    need: Need,
    attempt: Callable[[str], Awaitable[Attempt]],
    *,
    hosts: Callable[[], Sequence[FleetHost]],
    changed: Callable[[], asyncio.Event],
    telling: Telling,
) -> Reservation:
    """Try to place a sandbox, again after each change. ``attempt`` is given the id of the
    reservation; ``changed`` returns what is set by the next change. Raises FleetFullError after
    ``timeout_s``, or at once if no machine could ever hold the sandbox, and what ``attempt``
    raises.
    """
    id_ = os.urandom(16).hex()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    is_told = False
    try:
        while True:
            change = changed()
            made = await attempt(id_)
            if made.found is not None:
                return made.found
            left = deadline - loop.time()
            if left <= 0 or not can_ever_fit(hosts(), need):
                lacks = lacks_of(hosts(), need, set(made.refused))
                raise full_error(lacks, need, waited_s=timeout_s if left <= 0 else 0.0)
            if not is_told:
                is_told = True
                telling.tell(FleetEventKind.WAITING, id=id_, need=need)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, made.again_s)):
                    await change.wait()
    except BaseException:
        if is_told:
            telling.tell(FleetEventKind.GAVE_UP, id=id_, need=need)
        raise
