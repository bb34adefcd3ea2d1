"""Keys typed into a terminal: they wait to be sent, are looked at for an answer, and tell which
program gets them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, TypeVar

from quicksand.base.errors import QuicksandError
from quicksand_panes.guest_terminal import TYPED_MAX, Running

from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quicksand.guest.shell import ShellInfo

    from quicksand_tui.door.silence import Silences


T = TypeVar("T")

ECHO_S = 1.0
"""Seconds without output after a key until the guest is asked: a password has no echo."""


class Typed:
    """Looks whether a terminal's guest answers the keys. A guest that echoes is not asked, nor is
    one that nobody types into."""

    def __init__(self, silences: Silences, sandbox_id: str) -> None:
        self._silences = silences
        self._sandbox_id = sandbox_id
        self._typed = asyncio.Event()
        self._heard = 0.0

    def typed(self) -> None:
        """Notes that something is sent to the guest."""
        self._typed.set()

    def heard(self) -> None:
        """Notes that the terminal has written something."""
        self._heard = time.monotonic()

    async def follow(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Looks until it is cancelled; ``ask`` asks the guest anything."""
        while True:
            await self._typed.wait()
            self._typed.clear()
            began = time.monotonic()
            await asyncio.sleep(ECHO_S)
            if self._heard >= began:
                continue
            try:
                await self._silences.heed(self._sandbox_id, ask(), waited_s=ECHO_S)
            except (OSError, TimeoutError, QuicksandError):
                self._typed.set()  # asks again


class TypedQueue:
    """Input that waits to be sent, in order. Keys survive a broken connection; answers, mouse and
    focus reports concern the screen of that connection, and are dropped with it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, bool]] = deque()
        """Data, and whether the user typed it."""
        self._size = 0
        self._next = bytearray()
        """Keys typed after the guest was reverted, but before the connection noticed."""

    def type(self, data: bytes) -> None:
        self._put(data, typed=True)

    def report(self, data: bytes) -> None:
        # A truncated answer would be read as keys.
        if self._size + len(data) <= TYPED_MAX:
            self._put(data, typed=False)

    def type_for_next(self, data: bytes) -> None:
        """Keeps keys for the guest after a revert."""
        self._next += data[: max(0, TYPED_MAX - len(self._next))]

    def _put(self, data: bytes, *, typed: bool) -> None:
        data = data[: max(0, TYPED_MAX - self._size)]
        if data:
            self._waiting.append((data, typed))
            self._size += len(data)

    def take(self) -> bytes:
        """Removes and returns all bytes that wait."""
        taken = b"".join(data for data, _ in self._waiting)
        self._waiting.clear()
        self._size = 0
        return taken

    def broke(self) -> None:
        """Keeps only the keys: a new connection to the same guest follows."""
        typed = [data for data, is_typed in self._waiting if is_typed]
        self.take()
        for data in typed:
            self.type(data)

    def reverted(self) -> None:
        """Drops input for the guest before the revert."""
        self.take()
        self.type(bytes(self._next))
        self._next.clear()


SETTLED_S = 0.3
"""Seconds after output until the guest is asked: a new program has its name by then."""

ASK_EVERY_S = 1.0
"""The least seconds between two questions, also while a program writes all the time."""

COMMAND_MAX = 200
DIRECTORY_MAX = 300
"""The most characters of a directory that are taken over, since a guest tells it."""


class Foreground:
    """Asks the guest after its terminal has written something: a program that begins or ends, or a
    shell that changes its directory, writes. An idle terminal costs nothing."""

    def __init__(self, tell: Callable[[Running], None]) -> None:
        self._tell = tell
        self._told = Running()
        self._spoke = asyncio.Event()

    def spoke(self) -> None:
        """Notes that the terminal has written something."""
        self._spoke.set()

    async def follow(self, find: Callable[[], Awaitable[ShellInfo | None]]) -> None:
        """Tells the program until it is cancelled; ``find`` asks the guest. While the guest does
        not answer, the title stays as it was."""
        while True:
            await self._spoke.wait()
            await asyncio.sleep(SETTLED_S)
            self._spoke.clear()
            info = None
            with contextlib.suppress(QuicksandError, OSError, TimeoutError):
                info = await find()
            if info is not None and (running := running_of(info)) != self._told:
                self._told = running
                self._tell(running)
            await asyncio.sleep(ASK_EVERY_S - SETTLED_S)


def running_of(info: ShellInfo) -> Running:
    """Returns the program in a terminal, in text that is fit to be shown."""
    command = " ".join(info.foreground or info.argv)
    return Running(
        command=sanitise(command, limit=COMMAND_MAX),
        directory=sanitise(info.cwd, limit=DIRECTORY_MAX),
    )
