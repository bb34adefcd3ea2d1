"""One connection to a machine for everything that a program does there, renewed when it breaks."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager
from typing import ClassVar, Protocol

from quicksand.base.errors import HostError, RemoteError, RemoteUnreachableError
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination
from quicksand.remote.node import NodeDestination
from quicksand.remote.peer_link import Link

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
