"""Cancels an operation wherever it can be cancelled: a cancellation arrives at an await."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from typing import Any


class Awaits:
    """Counts how often an operation, with all tasks that it makes, waits for something, and cancels
    it at one of these waits."""

    def __init__(self, at: int) -> None:
        """``at``: the number of the wait, from 1 on."""
        self.made = 0
        self.where = ""
        """The functions that waited when it was cancelled; "" if it made fewer waits."""
        self._at = at
        self._task: asyncio.Task[object] | None = None

    async def cancel(self, work: Callable[[], Awaitable[object]]) -> bool:
        """Run the operation; returns whether the cancellation ended it. Raises what it raises."""

        async def whole() -> object:
            return await work()

        with self._counting():
            self._task = asyncio.create_task(whole())
            await asyncio.wait((self._task,))
        if self._task.cancelled():
            return True
        self._task.result()
        return False

    @contextlib.contextmanager
    def _counting(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()

        def make(
            loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
        ) -> asyncio.Task[Any]:
            return asyncio.Task(_Counted(work, self._note), loop=loop, **options)

        loop.set_task_factory(make)  # type: ignore[arg-type]
        try:
            yield
        finally:
            loop.set_task_factory(before)

    def _note(self, work: Any) -> None:
        self.made += 1
        if self.made == self._at and self._task is not None:
            asyncio.get_running_loop().call_soon(self._task.cancel)
            names = []
            while (frame := getattr(work, "cr_frame", None)) is not None:
                names.append(frame.f_code.co_name)
                work = work.cr_await
            self.where = " > ".join(names)


class _Counted(Coroutine[Any, Any, Any]):
    """A task's coroutine that tells of each of its waits. A generator around it would not do: a
    task that is cancelled before its first step would end the generator alone."""

    def __init__(self, work: Coroutine[Any, Any, Any], note: Callable[[Any], None]) -> None:
        self._work = work
        self._note = note

    def send(self, value: Any, /) -> Any:
        waited_for = self._work.send(value)
        self._note(self._work)
        return waited_for

    def throw(self, *error: Any) -> Any:
        waited_for = self._work.throw(*error)
        self._note(self._work)
        return waited_for

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._work.__await__()
