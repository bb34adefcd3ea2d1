"""Tells what runs in the foreground of a terminal, for the title of its pane."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quicksand.base.errors import QuicksandError

from quicksand_tui.model.text import sanitise
from quicksand_tui.panes.content import Running

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from quicksand.guest.shell import ShellInfo

SETTLED_S = 0.3
"""Seconds after output until the guest is asked: a program that has just begun has its name by
then."""

ASK_EVERY_S = 1.0
"""The least seconds between two questions, also while a program writes all the time."""

COMMAND_MAX = 200
DIRECTORY_MAX = 300
"""The most characters that are taken over: all of it is what a guest says."""


class Foreground:
    """Asks the guest after its terminal has written something: a program that begins or ends, or
    a shell that changes its directory, does so. An idle terminal costs nothing."""

    def __init__(self, tell: Callable[[Running], None]) -> None:
        self._tell = tell
        self._told = Running()
        self._spoke = asyncio.Event()

    def spoke(self) -> None:
        """The terminal has written something."""
        self._spoke.set()

    async def follow(self, find: Callable[[], Awaitable[ShellInfo | None]]) -> None:
        """Tells what runs, until it is cancelled; ``find`` asks the guest. A guest that does not
        answer is another's concern: the title stays as it was."""
        while True:
            await self._spoke.wait()
            await asyncio.sleep(SETTLED_S)
            self._spoke.clear()
            try:
                info = await find()
            except (QuicksandError, OSError, TimeoutError):
                return
            if info is not None and (running := running_of(info)) != self._told:
                self._told = running
                self._tell(running)
            await asyncio.sleep(ASK_EVERY_S - SETTLED_S)


def running_of(info: ShellInfo) -> Running:
    """Returns what runs in a terminal, in text that is fit to be shown."""
    command = " ".join(info.foreground or info.argv)
    return Running(
        command=sanitise(command, limit=COMMAND_MAX),
        directory=sanitise(info.cwd, limit=DIRECTORY_MAX),
    )
