"""Tasks in the background, which are kept, named and ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from quicksand.extending import describe_error, is_fault, note_fault


def words_of(error: BaseException) -> str:
    """Returns words for an error of work in the background. A fault of ours goes to the log, and
    the words say only that there was one, and where."""
    return (
        f"the server has made a mistake; {note_fault(error)}"
        if is_fault(error)
        else describe_error(error)
    )


class Tasks:
    """Tasks of one owner. A failure is passed to ``failed``, and ends no other."""

    def __init__(self, failed: Callable[[str, BaseException], None]) -> None:
        self._failed = failed
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task.get_name(), error)

    async def end(self) -> None:
        """Cancels all tasks, and waits for their ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
