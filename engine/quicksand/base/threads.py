"""Runs work that a cancellation must not leave half done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T], *, patience: float | None = None) -> T:
    """Await ``work`` to its end even if this task is cancelled meanwhile, perhaps repeatedly
    (Ctrl-C pressed twice); raise the cancellation afterwards. Raises the errors of ``work``.

    With ``patience``, work that is not done so many seconds after the first cancellation is
    cancelled, too, and then awaited."""
    task = asyncio.create_task(work, name="quicksand-to-the-end")
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            if cancelled is None and patience is not None:
                asyncio.get_running_loop().call_later(patience, task.cancel)
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # retrieved, since only the cancellation is raised
        raise cancelled
    return task.result()


async def in_thread_to_the_end(function: Callable[[], T]) -> T:
    """Run ``function`` in a thread. A cancellation waits for its end, so that the caller cleans up
    after it and not before it. Raises the errors of ``function``."""
    return await to_the_end(asyncio.to_thread(function))


async def both(one: Awaitable[None], other: Awaitable[None]) -> None:
    """Await both at the same time, each to its end, so that neither is still at work when the
    caller cleans up; then raise the first error, if any."""
    for result in await asyncio.gather(one, other, return_exceptions=True):
        if result is not None:
            raise result


class Stopped(Exception):  # noqa: N818 - reads as a fact
    """Raised in the thread: the task that waits for it was cancelled."""


async def in_stoppable_thread(function: Callable[[Callable[[], None]], T]) -> T:
    """Run ``function`` in a thread. It gets a callable that raises Stopped once this task is
    cancelled; the cancellation waits until it has ended. Raises the errors of ``function``."""
    stop = threading.Event()

    def check() -> None:
        if stop.is_set():
            raise Stopped

    return await stopped_when_cancelled(asyncio.to_thread(function, check), stop.set)


async def stopped_when_cancelled(
    work: Coroutine[Any, Any, T], stop: Callable[[], None], *, cancels: bool = False
) -> T:
    """Await ``work``. A cancellation calls ``stop``, with ``cancels`` also cancels the work, and
    waits for its end. Raises the errors of ``work``."""
    task = asyncio.create_task(work, name="quicksand-stoppable")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        stop()
        if cancels:
            task.cancel()
        await to_the_end(_ended(task))
        raise


async def _ended(work: asyncio.Task[T]) -> None:
    await asyncio.wait((work,))
    if not work.cancelled():
        work.exception()  # retrieved, since only the cancellation is raised
