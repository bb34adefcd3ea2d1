"""A growing log of a sandbox of another machine: its `logs --follow` there, whose output is kept
until it is read."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import threading
from typing import TYPE_CHECKING

from quicksand.base.errors import QuicksandError
from quicksand.remote.asking import AskedCommand, CommandLine

from quicksand_tui.door.service_protocol import LogKind
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.verbs.call import words_of
from quicksand_tui.verbs.index import find_verb

if TYPE_CHECKING:
    from quicksand_tui.door.far_host import FarHost

LINES = 2000
"""Lines of the past, at first."""

KEPT_MAX = 1024 * 1024
"""The most characters that wait to be read; the oldest are dropped."""

AGAIN_S = 1.0
"""Seconds between two looks whether a log that has ended goes on; they read only facts that the
machine has told already."""


class FarLog:
    """Implements `door.service_protocol.LogSource`."""

    def __init__(
        self,
        host: FarHost,
        sandbox_id: str,
        kind: LogKind,
        *,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        self._host = host
        self._id = sandbox_id
        self._flags = ("follow", "qemu") if kind is LogKind.QEMU else ("follow",)
        self._lines = LINES
        """The number of lines of the past that are wanted."""
        self._engine = engine
        self._tasks = tasks
        self._lock = threading.Lock()
        self._text = ""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        engine.call_soon_threadsafe(self._begin)

    def read(self) -> str:
        with self._lock:
            text, self._text = self._text, ""
        return text

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._engine.call_soon_threadsafe(self._end)

    # On the engine's loop

    def _begin(self) -> None:
        if not self._is_closed:
            self._task = asyncio.create_task(self._run(), name="quicksand-far-log")
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()

    def _put(self, text: str) -> None:
        with self._lock:
            self._text = (self._text + text)[-KEPT_MAX:]

    async def _run(self) -> None:
        """Follows the log until it is cancelled; after a break it shows new lines only."""
        while True:
            mark = self._mark
            try:
                await self._follow()
            except QuicksandError as error:
                self._put(f"\n[{text_of(error).splitlines()[0]}]\n")
            while True:
                await asyncio.sleep(AGAIN_S)
                if self._mark != mark and self._host.connection:
                    break

    @property
    def _mark(self) -> object:
        """A value that changes when the log may go on."""
        view = self._host.sandbox(self._id)
        return self._host.connection, view.run if view is not None else ""

    async def _follow(self) -> None:
        values = {**dict.fromkeys(self._flags, True), "lines": str(self._lines)}
        words = words_of(find_verb("logs"), self._id, values)
        asked = AskedCommand(self._host.link, CommandLine(argv=words))
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            await asked.start()
            async for _, data in asked.pieces():
                self._put(decoder.decode(data))
                self._lines = 0
        finally:
            asked.signal("HUP")
