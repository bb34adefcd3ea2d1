"""Work that a cancellation must not leave behind half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end, however often this task is cancelled meanwhile (Ctrl-C pressed
    twice); the cancellation is raised after that."""
    task = asyncio.create_task(work, name="quicksand-to-the-end")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # seen: the cancellation is what counts
        raise cancelled
    return task.result()


async def in_thread_to_the_end(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread. A cancellation waits for it: what it makes must not appear
    after the clearing up."""
    return await to_the_end(asyncio.to_thread(function))
