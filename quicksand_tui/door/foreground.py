"""Tells the program in the foreground of a terminal, for the title of its pane."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from quicksand.base.errors import QuicksandError

from quicksand_tui.model.text import sanitise
from quicksand_tui.panes.content import Running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quicksand.guest.shell import ShellInfo

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
