"""The place of the sandbox of a pane's terminal: the machine that it has now, the way into its
guest, and the right to answer its queries."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from quicksand.base.paths import paths
from quicksand.life import machinery
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox
from quicksand.things.status import Status

if TYPE_CHECKING:
    from quicksand.base.errors import QuicksandError
    from quicksand.guest.execution import Command
    from quicksand.guest.shell import Shell, ShellInfo, WatchedShell
    from quicksand.life.sandbox_stats import GuestProcess, SandboxStats
    from quicksand.records.layout import MachineDir


class AnswerRight:
    """The right to answer, for one client. Never raises; without the lock file there is no
    right."""

    def __init__(self, machine: MachineDir, session: str) -> None:
        # The guest chooses the session's name, so it is not used in a path.
        name = hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        path = machine.root / f"answers-{name}.lock"
        self._descriptor: int | None = None
        self._is_held = False
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with contextlib.suppress(OSError):  # the machine has just ended
            self._descriptor = os.open(path, flags, 0o600)

    def take(self) -> bool:
        """Takes the right if nobody holds it; returns whether this client holds it."""
        if self._descriptor is not None and not self._is_held:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._is_held = True
        return self._is_held

    def takes_over(self) -> bool:
        """Takes the right if nobody holds it; returns whether this client held it before. Queries
        that arrive at the moment of taking it over were still the former client's to answer."""
        had = self._is_held
        return self.take() and had

    def close(self) -> None:
        """Gives the right back; idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        self._is_held = False


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


class Right(Protocol):
    """The right to answer the queries of a terminal, as `AnswerRight`."""

    def take(self) -> bool: ...

    def takes_over(self) -> bool: ...

    def close(self) -> None: ...


class SandboxPlace(Protocol):
    """A sandbox whose guest is to be reached, and reached again. Each start and each revert makes
    another machine of it."""

    @property
    def machine(self) -> object:
        """A value that tells its present machine from those before and after it."""

    @property
    def mark(self) -> object:
        """The same value for a machine that exists; None if there is none now. Never raises."""

    @property
    def is_away(self) -> bool:
        """Whether its host does not answer now, and is tried again."""

    @property
    def again(self) -> str:
        """The words told when another of its machines can be reached."""

    async def runs(self) -> bool:
        """Whether its guest can be reached. Raises OSError and QuicksandError."""

    async def starts(self) -> bool:
        """Whether it is just starting. Raises OSError and QuicksandError."""

    def reach(self) -> AbstractAsyncContextManager[Guest]:
        """Opens and closes the way to its guest. Raises QuicksandError."""

    def right(self, session: str, attached: int) -> Right:
        """Returns the right to answer for a terminal that had so many clients."""

    def why_gone(self) -> QuicksandError | None:
        """Returns the reason why its machine has ended; None if nobody knows."""


class PlaceHere:
    """A sandbox of this machine."""

    def __init__(self, sandbox_id: str) -> None:
        self._id = sandbox_id

    is_away = False
    again = "the sandbox runs again"

    @property
    def machine(self) -> MachineDir:
        return Registry(paths()).machine(self._id)

    @property
    def mark(self) -> object:
        try:
            machine = self.machine
            return machine, machine.root.stat().st_ino
        except OSError:
            return None

    async def runs(self) -> bool:
        return await self._is(Status.RUNNING)

    async def starts(self) -> bool:
        return await self._is(Status.STARTING)

    async def _is(self, status: Status) -> bool:
        entry = await asyncio.to_thread(Registry(paths()).inspect, self._id)
        return entry is not None and entry.status is status

    def reach(self) -> AbstractAsyncContextManager[Guest]:
        return reach_here(self._id)

    def right(self, session: str, attached: int) -> Right:
        return AnswerRight(self.machine, session)

    def why_gone(self) -> QuicksandError | None:
        return machinery.why_gone(Registry(paths()).place(self._id), doing="it was in use")
