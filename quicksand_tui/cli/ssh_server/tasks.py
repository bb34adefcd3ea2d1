"""The tasks of a connection, which end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Runs coroutines beside each other. None of them may raise."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.is_ending = False
        """Whether the connection ends: long work is not begun any more."""

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Runs a coroutine, and returns its task."""
        task = asyncio.create_task(work, name=f"quicksand-ssh-{name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def end(self, patience: float) -> None:
        """Waits so many seconds for all of them, then cancels those that are left."""
        self.is_ending = True
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        while self._running and (left := deadline - loop.time()) > 0:  # they may start others
            await asyncio.wait(self._running, timeout=left)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
