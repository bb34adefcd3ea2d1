"""The place of the sandbox of a pane's terminal, and the machine that it has now."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

from quicksand.base.errors import QuicksandError
from quicksand.base.paths import paths
from quicksand.qemu.process import why_gone
from quicksand.records.registry import Registry
from quicksand.things.status import Status

from quicksand_tui.door.answering import AnswerRight
from quicksand_tui.door.reach import reach_here

if TYPE_CHECKING:
    from quicksand.records.layout import MachineDir

    from quicksand_tui.door.reach import Guest


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
        return why_gone(Registry(paths()).place(self._id), doing="it was in use")
