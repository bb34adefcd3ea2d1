"""`Awaits`, by which tests cancel operations: its tasks are like those of asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import gc

from tests.cancelling import Awaits


async def two_steps() -> str:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return "done"


async def test_an_operation_is_cancelled_at_each_of_its_awaits_and_then_at_none() -> None:
    results: list[str] = []

    async def work() -> None:
        results.append(await two_steps())

    cancelled = [await Awaits(number).cancel(work) for number in (1, 2, 3)]
    assert cancelled == [True, True, False]
    assert results == ["done"]


async def test_a_task_that_is_cancelled_before_its_first_step_leaves_no_warning() -> None:
    async def work() -> None:
        task = asyncio.create_task(two_steps())
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    assert not await Awaits(1000).cancel(work)
    gc.collect()  # one of a coroutine that was never awaited comes when that is collected


async def test_an_error_of_a_task_is_raised() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise OSError

    async def work() -> None:
        with contextlib.suppress(OSError):
            await asyncio.create_task(fail())

    assert not await Awaits(1000).cancel(work)
