"""Runs asynchronous work for a caller that is not asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def run_and_wait(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Do ``work`` and wait for its end, which blocks this thread. Raises the errors of ``work``.

    Where an event loop already runs in this thread, the work gets another thread, and that loop
    stands still meanwhile. Otherwise Ctrl-C cancels the work.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1, "quicksand-wait") as thread:
        return thread.submit(lambda: asyncio.run(work())).result()
