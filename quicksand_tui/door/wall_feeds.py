"""Watches the terminals of several sandboxes at once, for the wall. Guests, their programs and
other clients notice nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Final

from quicksand.base.errors import AgentRefusedError, QuicksandError

from quicksand_tui.door.terminals import birth_of
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import sanitise
from quicksand_tui.model.wall_plan import NOTHING_HEARD, Heard, WatchedTerminal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from quicksand.guest.shell import ShellInfo

    from quicksand_tui.door.terminal_place import Guest, Reach

LIST_S: Final = 3.0
"""Seconds between two questions to a guest for its terminals: answering wakes an idle guest."""

ANSWER_S: Final = 5.0
"""Seconds to wait for the answer."""

AGAIN_S: Final = 1.0
"""Seconds before a guest that did not answer is asked again."""

TERMINALS_MAX: Final = 16
"""The most terminals of one sandbox that are watched."""

KEPT_MAX: Final = 16 * 1024
"""The most bytes that wait for the wall to take them; beyond that, no more are read, so that the
guest leaves out old output."""

REPLAY: Final = 64 * 1024
"""Bytes of earlier output with which a tile begins."""

PROGRAM_MAX: Final = 120
PATH_MAX: Final = 200
"""The most characters of a path."""

Key = tuple[str, str, str]
"""The sandbox, the session and the birth of a terminal."""


class _Output:
    """Output of one terminal: filled on the engine's loop, taken in the UI's thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._data = bytearray()
        self._old = bytearray()
        self._skipped = False
        self._begun = True
        self.room = asyncio.Event()

    def put(self, data: bytes, *, replayed: bool, skipped: bool) -> bool:
        """Adds output; returns whether there is room for more."""
        with self._lock:
            if replayed:
                self._old += data
            else:
                self._data += data
            self._skipped = self._skipped or skipped
            return len(self._data) + len(self._old) < KEPT_MAX

    def take(self) -> Heard:
        with self._lock:
            if not (self._data or self._old or self._begun):
                return NOTHING_HEARD
            taken = Heard(
                repeated=bytes(self._old),
                fresh=bytes(self._data),
                skipped=self._skipped,
                begun=self._begun,
            )
            self._old.clear()
            self._data.clear()
            self._skipped = self._begun = False
            return taken


class EngineWall:
    """Watches terminals as long as it is open; the UI's thread calls the public methods, which
    return at once and do not raise."""

    def __init__(
        self,
        reach: Reach,
        *,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[None]],
    ) -> None:
        """``reach`` leads into guests, and changes nothing there. ``tasks`` are those of the
        engine's loop that are awaited when the app ends."""
        self._reach = reach
        self._engine = engine
        self._tasks = tasks
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._listed: dict[str, tuple[WatchedTerminal, ...]] = {}
        self._whys: dict[str, str] = {}
        self._outputs: dict[Key, _Output] = {}

    def want(self, sandbox_ids: Collection[str]) -> None:
        """Sets the sandboxes that are watched from now on."""
        wanted = frozenset(sandbox_ids)
        self._do(lambda: self._want(wanted))

    def terminals(self, sandbox_id: str) -> tuple[WatchedTerminal, ...] | None:
        """Returns the terminals of a sandbox, the oldest first; None if they are not known yet."""
        return self._listed.get(sandbox_id)

    def why(self, sandbox_id: str) -> str:
        """Returns why the terminals of a sandbox are not watched; "" if they are."""
        return self._whys.get(sandbox_id, "")

    def take(self, sandbox_id: str, session: str, birth: str) -> Heard:
        """Removes and returns the output of a terminal."""
        output = self._outputs.get((sandbox_id, session, birth))
        taken = NOTHING_HEARD if output is None else output.take()
        if output is not None and (taken.repeated or taken.fresh):
            self._do(output.room.set)
        return taken

    def close(self) -> None:
        """Ends all looks."""
        self.want(())

    def _do(self, function: Callable[[], object]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._engine.call_soon_threadsafe(function)

    # On the engine's loop

    def _want(self, wanted: frozenset[str]) -> None:
        for sandbox_id in self._looks.keys() - wanted:
            self._looks.pop(sandbox_id).cancel()
            self._forget(sandbox_id)
        for sandbox_id in wanted - self._looks.keys():
            task = asyncio.create_task(self._watch(sandbox_id), name="quicksand-wall")
            self._looks[sandbox_id] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _forget(self, sandbox_id: str) -> None:
        self._listed.pop(sandbox_id, None)
        self._whys.pop(sandbox_id, None)
        self._outputs = {key: out for key, out in self._outputs.items() if key[0] != sandbox_id}

    async def _watch(self, sandbox_id: str) -> None:
        """Watches a sandbox until it is cancelled; looks again for lost terminals."""
        while True:
            try:
                await self._watch_machine(sandbox_id)
            except (QuicksandError, OSError, TimeoutError) as error:
                said = text_of(error) if isinstance(error, QuicksandError) else str(error)
                self._whys[sandbox_id] = sanitise(said.partition("\n")[0], limit=200)
            await asyncio.sleep(AGAIN_S)

    async def _watch_machine(self, sandbox_id: str) -> None:
        """Watches until the machine is gone, as after a revert. Raises the error that broke it."""
        async with self._reach(sandbox_id) as guest:
            readers: dict[Key, asyncio.Task[None]] = {}
            try:
                while True:
                    async with asyncio.timeout(ANSWER_S):
                        listed = await guest.shells()
                    self._take_list(sandbox_id, listed)
                    self._follow(guest, sandbox_id, listed, readers)
                    broken = await _first_broken(readers, LIST_S)
                    if broken is not None:
                        raise broken
            finally:
                for task in readers.values():
                    task.cancel()
                await asyncio.gather(*readers.values(), return_exceptions=True)

    def _take_list(self, sandbox_id: str, listed: list[ShellInfo]) -> None:
        running = sorted((info for info in listed if info.alive), key=lambda info: info.created)
        self._listed[sandbox_id] = tuple(
            WatchedTerminal(
                session=info.session,
                birth=birth_of(info),
                columns=info.columns,
                rows=info.rows,
                program=sanitise(" ".join(info.foreground or info.argv), limit=PROGRAM_MAX),
                directory=sanitise(info.cwd, limit=PATH_MAX),
            )
            for info in running[:TERMINALS_MAX]
        )
        self._whys.pop(sandbox_id, None)

    def _follow(
        self,
        guest: Guest,
        sandbox_id: str,
        listed: list[ShellInfo],
        readers: dict[Key, asyncio.Task[None]],
    ) -> None:
        """Begins to read new terminals, and forgets those that are gone."""
        terminals = self._listed[sandbox_id]
        keys = {(sandbox_id, one.session, one.birth) for one in terminals}
        for key in readers.keys() - keys:
            readers.pop(key).cancel()
            self._outputs.pop(key, None)
        for key in keys - readers.keys():
            output = self._outputs[key] = _Output()
            readers[key] = asyncio.create_task(self._read(guest, key[1], output))

    async def _read(self, guest: Guest, session: str, output: _Output) -> None:
        """Reads a terminal until its program ends, no faster than its output is taken. Raises the
        error that broke the connection."""
        try:
            watched = await guest.watch_shell(session, replay=REPLAY)
        except AgentRefusedError as error:
            if error.code == "not_found":
                return  # the terminal has just ended; the next list says so
            raise
        try:
            async for piece in watched.pieces():
                skipped = watched.take_skipped()
                has_room = output.put(piece.data, replayed=piece.replayed, skipped=skipped)
                while not has_room:
                    output.room.clear()
                    await output.room.wait()
                    has_room = output.put(b"", replayed=False, skipped=False)
        finally:
            with contextlib.suppress(QuicksandError, TimeoutError):
                async with asyncio.timeout(ANSWER_S):
                    await watched.close()


async def _first_broken(
    readers: dict[Key, asyncio.Task[None]], seconds: float
) -> BaseException | None:
    """Waits so many seconds, or until a reader fails; returns its error."""
    deadline = time.monotonic() + seconds
    waiting = {task for task in readers.values() if not task.done()}
    while waiting and (left := deadline - time.monotonic()) > 0:
        done, waiting = await asyncio.wait(
            waiting, timeout=left, return_when=asyncio.FIRST_EXCEPTION
        )
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                return error
    if (left := deadline - time.monotonic()) > 0:
        await asyncio.sleep(left)
    for task in readers.values():
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            return error
    return None
