"""Connections that are forwarded: those of the client into the guest, and those of the guest's
programs to the client."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import asyncssh
from quicksand.base.errors import AgentRefusedError, QuicksandError, StateError
from quicksand.guest.connections import GuestConnection, GuestListener

from quicksand_tui.cli.ssh_server.pipes import Pipe
from quicksand_tui.model.remedy_words import text_of
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand_tui.cli.ssh_server.common import Tasks


class Forwarded(Pipe):
    """A channel whose other side is a connection of the guest."""

    def __init__(self, connection: GuestConnection, tasks: Tasks) -> None:
        super().__init__()
        self._connection = connection
        self._tasks = tasks

    def session_started(self) -> None:
        self._tasks.start(self._carry(), "forward")

    async def _carry(self) -> None:
        """Carries bytes until both directions have ended, or one has failed."""
        try:
            await self.until_lost(self._carry_both())
        finally:
            self._connection.close()
            self._chan.close()

    async def _carry_both(self) -> None:
        # The client sees a broken connection as its end: SSH has no word for it.
        with contextlib.suppress(QuicksandError, ExceptionGroup):
            async with asyncio.TaskGroup() as both:
                feeding = both.create_task(self._carry_in())
                both.create_task(self._carry_out(feeding))

    async def _carry_in(self) -> None:
        while data := await self.read():
            await self._connection.write(data)
        self._connection.write_eof()

    async def _carry_out(self, feeding: asyncio.Task[None]) -> None:
        while data := await self._connection.read():
            if not await self.write(data):
                feeding.cancel()
                return
        self.write_eof()
        # A service that is gone altogether takes nothing more: the client is not to send for ever.
        await self._connection.finish()
        feeding.cancel()


class ForwardedTcp(Forwarded, asyncssh.SSHTCPSession[bytes]):
    """A connection to or from a port of the guest."""


class ForwardedUnix(Forwarded, asyncssh.SSHUNIXSession[bytes]):
    """A connection to or from a Unix socket of the guest."""


def refusal(error: QuicksandError) -> asyncssh.ChannelOpenError:
    """Returns the refusal told to the client when a connection could not be made in the guest."""
    code = asyncssh.OPEN_CONNECT_FAILED
    if isinstance(error, AgentRefusedError) and error.code in ("forbidden", "bad_request"):
        code = asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED
    elif isinstance(error, StateError):
        code = asyncssh.OPEN_RESOURCE_SHORTAGE
    return asyncssh.ChannelOpenError(code, clean(text_of(error)))


Offer = Callable[[GuestConnection], Awaitable[object]]
"""Offers a connection from the guest to the client. Raises asyncssh.ChannelOpenError."""


class GuestForward(asyncssh.SSHListener):
    """A socket in the guest, whose connections are forwarded to the client."""

    def __init__(self, listener: GuestListener, offer: Offer, tasks: Tasks) -> None:
        super().__init__()
        self._listener = listener
        self._offer = offer
        self._tasks = tasks
        self._task = tasks.start(self._accept(), "listen")

    def get_port(self) -> int:
        return self._listener.port or 0

    async def _accept(self) -> None:
        try:
            while True:
                try:
                    connection = await self._listener.accept()
                except StateError:
                    continue  # too many at once: the agent closes it
                self._tasks.start(self._hand_over(connection), "accepted")
        except QuicksandError:
            return  # the guest is gone, and the whole connection ends
        finally:
            self._listener.close()

    async def _hand_over(self, connection: GuestConnection) -> None:
        try:
            await self._offer(connection)
        except (asyncssh.Error, OSError):  # the client does not want it
            connection.close()

    def close(self) -> None:
        self._task.cancel()

    async def wait_closed(self) -> None:
        await asyncio.wait((self._task,))
