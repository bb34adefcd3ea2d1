"""The near end: a connection to another machine, which can be renewed after a break."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quicksand.base.errors import RemoteError, RemoteUnreachableError
from quicksand.remote.destination import Destination
from quicksand.remote.hello import Hello, Welcome
from quicksand.remote.node import NodeDestination
from quicksand.remote.peer_link import Link
from quicksand.remote.ssh import Ssh, greet, start_way

if TYPE_CHECKING:
    from quicksand.remote.askpass import Askpass

AGAIN_S = (1.0, 30.0)
"""The first and the longest pause in seconds between two attempts to reconnect; the pause
doubles."""

AWAY_MAX_S = 300.0
"""Seconds for which attempts to reach a machine go on."""


class Connection:
    """A connection to one machine, over one ssh at a time. An ``async with`` block opens and closes
    it; `again` opens it anew."""

    def __init__(
        self,
        destination: Destination | NodeDestination,
        *,
        asks: bool,
        askpass: Askpass | None = None,
    ) -> None:
        """``asks``: ssh may ask the user for passwords on our terminal, but not when it reconnects.
        With ``askpass`` it asks there, each time."""
        self.destination = destination
        self._asks = asks
        self._askpass = askpass
        self._client = os.urandom(16).hex()
        self._ssh: Ssh | None = None
        self._link: Link | None = None
        self._tasks: list[asyncio.Task[object]] = []
        self._opening = asyncio.Lock()
        self._deadline: float | None = None
        """The time at which the machine is given up; None once it has got on."""
        self._pause = 0.0
        self.welcome: Welcome | None = None
        """The other machine's answer to the last hello."""

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def link(self) -> Link:
        """The present connection, which may have ended. Raises RemoteUnreachableError before
        `open`."""
        if self._link is None:
            raise RemoteUnreachableError(f"not connected to {self.destination.short}")
        return self._link

    async def open(self, *, resume: bool = False) -> Welcome:
        """Connect. Raises as `ssh.greet`, and HostError if there is no ssh here."""
        async with self._opening:
            await self._end()
            asks = self._asks and not resume
            ssh = await start_way(self.destination, asks=asks, askpass=self._askpass)
            try:
                hello = Hello(client=self._client, resume=resume)
                welcome = await greet(ssh, hello, asks=asks)
            except BaseException:
                await ssh.abandon()
                raise
            self._ssh, self.welcome = ssh, welcome
            link = Link(ssh.reader, ssh.writer, name=self.destination.short)
            self._link = link
            self._tasks = [
                asyncio.create_task(link.run(), name="quicksand-link"),
                asyncio.create_task(link.show_life(), name="quicksand-alive"),
                asyncio.create_task(link.watch(), name="quicksand-watch"),
            ]
            return welcome

    async def again(self, error: RemoteError, *, told: Callable[[RemoteError], None]) -> bool:
        """Reconnect after the connection broke with ``error``, trying for `AWAY_MAX_S`, even over
        several connections that break before `got_on`. Return whether the other machine still knows
        what was begun. ``told`` gets the error of each attempt. Raises the last one."""
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + AWAY_MAX_S
        while True:
            if loop.time() + self._pause > self._deadline:
                raise error
            await asyncio.sleep(self._pause)
            first, longest = AGAIN_S
            self._pause = min(max(2 * self._pause, first), longest)
            try:
                return (await self.open(resume=True)).resumed
            except RemoteUnreachableError as found:
                error = found
                told(error)

    def got_on(self) -> None:
        """Note that the machine did more than answer: a later break counts anew."""
        self._deadline, self._pause = None, 0.0

    def can(self, capability: str) -> bool:
        """Whether the other machine has said that it has a capability."""
        return self.welcome is not None and capability in self.welcome.capabilities

    async def close(self) -> None:
        """Say goodbye and end the connection: the other machine then forgets each command once it
        is over. Idempotent."""
        if self._link is not None:
            self._link.leave()
        await self._end()

    async def _end(self) -> None:
        ssh, self._ssh = self._ssh, None
        if ssh is not None:
            await ssh.end()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks = []
