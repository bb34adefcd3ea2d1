"""The way into a running guest of this machine, or of another. Both are asked in the same words."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from quicksand.sandbox import Sandbox

if TYPE_CHECKING:
    from quicksand.guest.execution import Command
    from quicksand.guest.shell import Shell, ShellInfo, WatchedShell
    from quicksand.life.sandbox_stats import GuestProcess, SandboxStats


class Guest(Protocol):
    """A running guest. Methods raise QuicksandError as those of `Sandbox` do."""

    @property
    def is_running(self) -> bool:
        """Whether its sandbox still runs."""

    async def shells(self) -> list[ShellInfo]: ...

    async def shell(
        self, *, columns: int, rows: int, cwd: str | None, env: Mapping[str, str], name: str
    ) -> Shell: ...

    async def attach_shell(self, session: str, *, columns: int, rows: int) -> Shell: ...

    async def watch_shell(self, session: str, *, replay: int) -> WatchedShell: ...

    async def spawn(self, command: str, *, timeout: float | None) -> Command: ...

    async def stats(self) -> SandboxStats:
        """Returns the guest's report; of another machine, without the use of its host."""

    async def processes(self) -> list[GuestProcess]: ...


Reach = Callable[[str], AbstractAsyncContextManager[Guest]]
"""Opens the guest of a running sandbox, by its id, and closes it. Raises QuicksandError."""


@contextlib.asynccontextmanager
async def reach_here(sandbox_id: str, *, set_clock: bool = True) -> AsyncIterator[Guest]:
    """Reaches a guest of this machine. Without ``set_clock`` nothing is changed there, not even a
    clock that the user has set."""
    sandbox = await asyncio.to_thread(partial(Sandbox.attach, sandbox_id, set_clock=set_clock))
    try:
        yield sandbox
    finally:
        sandbox.close()
