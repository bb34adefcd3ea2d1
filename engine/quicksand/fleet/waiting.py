"""Lets other programs see that a sandbox waits for a place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from quicksand.base.effort import best_effort
from quicksand.base.paths import paths
from quicksand.records.waiting import WaitingList

SEEN_AFTER_S = 0.2
"""Seconds after which a sandbox counts as one that waits: most have a place at once."""


@contextlib.asynccontextmanager
async def seen_waiting() -> AsyncIterator[None]:
    """Be one that waits within the block, if it takes so long."""
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
