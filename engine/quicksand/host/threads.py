"""Work in threads that a cancellation must not leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread_to_the_end(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread. A cancellation waits for it: what it makes must not appear
    after the clearing up."""
    task = asyncio.create_task(asyncio.to_thread(function), name="quicksand-thread")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what counts
        raise
