"""The near end: a connection to another machine, which can be renewed after a break, and which the
objects of one program share."""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from quicksand.base.errors import HostError, RemoteError, RemoteUnreachableError
from quicksand.remote.destination import Destination, NodeDestination
from quicksand.remote.hello import Hello, Welcome
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


Way = Destination | NodeDestination
"""The machine to which a connection leads."""


class Sharing(Protocol):
    """The part of a shared connection that `quicksand.hosted` needs. See `SharedConnection`."""

    @property
    def destination(self) -> Way: ...
    @property
    def generation(self) -> int: ...
    def use(self) -> AbstractContextManager[None]: ...
    async def link(self) -> Link: ...
    def present(self) -> Link: ...
    def can(self, capability: str) -> bool: ...
    def got_on(self) -> None: ...
    async def ended(self) -> None: ...


class SharedConnection:
    """The shared connection to one machine. It is made when it is first needed, renewed as soon as
    it breaks (the other machine ends sandboxes without a client), and ended with its last user."""

    def __init__(self, destination: Way, *, asks: bool) -> None:
        """``asks``: ssh may ask the user for passwords on our terminal."""
        self.destination = destination
        self.generation = 0
        """Grows when the other machine no longer knows the work begun there."""
        self.on_away: Callable[[RemoteError], None] = lambda _: None
        """Called with the reason before each attempt to renew the connection."""
        self.bulk = asyncio.Lock()
        """Held by large transfers."""
        self._asks = asks
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._users = 0
        self._unused = asyncio.Event()
        self._why: RemoteError | HostError | None = None
        """Why the connection was given up."""

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Use the connection: it lasts at least as long as this block."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    @property
    def is_alive(self) -> bool:
        """Whether the connection exists at this moment."""
        return self._connection is not None and not self._connection.link.ended.is_set()

    async def link(self) -> Link:
        """Return the present connection; make one if there is none, and wait for one that is being
        renewed. Raises RemoteError, HostError if there is no ssh here."""
        while True:
            async with self._lock:
                if self._connection is None:
                    await self._open()
                if self.is_alive:
                    assert self._connection is not None
                    return self._connection.link
            await asyncio.sleep(0)  # the keeper takes the lock next

    def present(self) -> Link:
        """Return the present connection, without waiting. Raises RemoteUnreachableError."""
        if not self.is_alive:
            raise RemoteUnreachableError(f"{self.destination.short} cannot be reached now")
        assert self._connection is not None
        return self._connection.link

    def can(self, capability: str) -> bool:
        """Whether the other machine has said that it has a capability."""
        return self._connection is not None and self._connection.can(capability)

    def got_on(self) -> None:
        """See `Connection.got_on`."""
        if self._connection is not None:
            self._connection.got_on()

    async def _open(self) -> None:
        connection = Connection(self.destination, asks=self._asks)
        await connection.open()
        self._connection = connection
        self.generation += 1
        self._keeper = asyncio.create_task(self._keep(connection), name="quicksand-host")

    async def _keep(self, connection: Connection) -> None:
        """Renew the connection whenever it breaks; end it with its last user."""
        unused = asyncio.create_task(self._unused.wait(), name="quicksand-unused")
        try:
            while True:
                ended = asyncio.create_task(connection.link.ended.wait(), name="quicksand-broken")
                try:
                    await asyncio.wait([unused, ended], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    ended.cancel()
                async with self._lock:
                    if not self._users:
                        return
                    if unused.done():
                        unused = asyncio.create_task(self._unused.wait(), name="quicksand-unused")
                    if connection.link.ended.is_set():
                        await self._make_anew(connection)
        except (RemoteError, HostError) as error:
            self._why = error
        finally:
            self._connection = None
            unused.cancel()
            await connection.close()

    async def _make_anew(self, connection: Connection) -> None:
        """Renew the connection, unless it has no users: a lost machine is tried for minutes."""
        broke = RemoteUnreachableError(f"the connection to {self.destination.short} broke")
        self.on_away(broke)
        again = asyncio.create_task(connection.again(broke, told=self.on_away))
        unused = asyncio.create_task(self._unused.wait())
        try:
            await asyncio.wait([again, unused], return_when=asyncio.FIRST_COMPLETED)
            if again.done() and not again.result():
                self.generation += 1
        finally:
            again.cancel()
            unused.cancel()
            await asyncio.wait([again, unused])

    async def ended(self) -> None:
        """Wait until the connection has ended, if it has no users."""
        if not self._users and self._keeper is not None:
            await asyncio.wait([self._keeper])


class SharedConnections:
    """The connections of one event loop, by machine."""

    _of_loops: ClassVar[
        MutableMapping[asyncio.AbstractEventLoop, MutableMapping[Way, SharedConnection]]
    ] = weakref.WeakKeyDictionary()

    @classmethod
    def find(cls, destination: Way, *, asks: bool) -> SharedConnection:
        """Return this loop's connection to a machine, which need not be made yet."""
        of_loop = cls._of_loops.setdefault(asyncio.get_running_loop(), {})
        if destination not in of_loop:
            of_loop[destination] = SharedConnection(destination, asks=asks)
        return of_loop[destination]
