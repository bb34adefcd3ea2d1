"""What is to be done to its end is, whoever cancels and how often."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from quicksand.base.threads import in_stoppable_thread, in_thread_to_the_end, to_the_end

from tests.each import each


@each("cancellations", [1, 3])
async def test_cancellations_wait_for_a_thread(cancellations: int) -> None:
    running, go_on = threading.Event(), threading.Event()
    done = []

    def work() -> None:
        running.set()
        go_on.wait(60)
        done.append(True)

    task = asyncio.create_task(in_thread_to_the_end(work))
    await asyncio.to_thread(running.wait, 60)
    for _ in range(cancellations):
        task.cancel()
        await asyncio.wait((task,), timeout=0.01)
        assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == [True]


async def test_results_and_errors_come_through() -> None:
    async def fail() -> None:
        raise ValueError("no")

    assert await in_thread_to_the_end(lambda: 7) == 7
    with pytest.raises(ValueError, match="no"):
        await to_the_end(fail())


async def test_an_error_after_a_cancellation_is_not_what_counts() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    async def fail() -> None:
        started.set()
        await go_on.wait()
        raise ValueError("no")

    task = asyncio.create_task(to_the_end(fail()))
    await started.wait()
    task.cancel()
    await asyncio.wait((task,), timeout=0.01)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_thread_can_be_stopped_where_it_looks() -> None:
    running, cleared = threading.Event(), threading.Event()

    def work(check: Callable[[], None]) -> None:
        try:
            while True:
                running.set()
                check()
        finally:
            cleared.set()

    task = asyncio.create_task(in_stoppable_thread(work))
    await asyncio.to_thread(running.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleared.is_set()
    assert await in_stoppable_thread(lambda check: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await in_stoppable_thread(lambda check: 1 // 0)


async def test_patience_with_work_that_goes_on_after_a_cancellation_ends() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.set()

    task = asyncio.create_task(to_the_end(work(), patience=0.01))
    await begun.wait()
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert ended.is_set()
