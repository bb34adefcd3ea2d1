"""The far end: answers one client on stdin and stdout, and waits for its return if need be."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Protocol

from quicksand.base.errors import RemoteError, RemoteUnreachableError
from quicksand.base.listening import Acceptor, bind_private
from quicksand.base.paths import make_private_dir, paths
from quicksand.records.host_sockets import HOST_SOCKETS, host_socket
from quicksand.remote.abandoned import remove_abandoned
from quicksand.remote.agents import Finish, relay
from quicksand.remote.hello import PROTOCOL, Hello, encode_refusal, read_hello, welcome
from quicksand.remote.peer_link import Link, Request

READ = 64 * 1024
Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Offer(Protocol):
    """Requests that a room above answers, in addition to our own."""

    @property
    def capability(self) -> str:
        """Return its name in the hello."""

    @property
    def methods(self) -> Collection[str]:
        """The requests."""

    async def answer(self, request: Request, before_keeping: Callable[[], Awaitable[None]]) -> None:
        """Answer a request of ``methods``. ``before_keeping`` is awaited before anything is kept
        for the client beyond its connection."""

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept for the client."""

    def away(self) -> None:
        """Note that the connection has ended; the client may come back."""

    def back(self) -> None:
        """Note that the client is back."""

    async def leave(self) -> None:
        """Note that the client does not come back."""

    async def settle(self) -> None:
        """Wait until nothing is kept."""


class StatelessOffer:
    """An offer that keeps nothing for a client that comes back."""

    is_empty = True

    def away(self) -> None: ...

    def back(self) -> None: ...

    async def leave(self) -> None: ...

    async def settle(self) -> None: ...


async def serve_stdio(finish: Finish, offers: Sequence[Offer] = ()) -> None:
    """Answer the client at the other end of stdin and stdout until it has gone and everything kept
    for it is over. ``finish`` is that of `relay`. Raises RemoteProtocolError if it does not speak
    our protocol at all."""
    reader, writer = await _stdio()
    try:
        hello, frame = await read_hello(reader)
    except EOFError:
        return
    if hello.protocol != PROTOCOL:
        writer.write(encode_refusal(hello))
        await writer.drain()
        return
    if hello.resume and (there := await _find_other(hello)) is not None:
        there[1].write(frame)
        await _pass_on((reader, writer), there)
        return
    await _Service(hello.client, finish, offers).serve(hello, (reader, writer))


async def _stdio() -> Ends:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    # Output of Python or a library must not come between the frames.
    mine = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), mine
    )
    return reader, asyncio.StreamWriter(transport, protocol, None, loop)


async def _find_other(hello: Hello) -> Ends | None:
    """Connect to the process that answered this client earlier, if it still exists."""
    try:
        return await asyncio.open_unix_connection(host_socket(paths(), hello.client))
    except OSError:
        return None


async def _pass_on(here: Ends, there: Ends) -> None:
    """Pass bytes on in both directions until one of them ends."""

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ):
                writer.write(data)
                await writer.drain()

    ways = [
        asyncio.create_task(copy(here[0], there[1]), name="quicksand-there"),
        asyncio.create_task(copy(there[0], here[1]), name="quicksand-back"),
    ]
    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    for way in ways:
        way.cancel()
    await asyncio.wait(ways)
    for _, writer in (here, there):
        writer.close()


class _Service:
    """Answers one client, over one connection after the other."""

    def __init__(self, client: str, finish: Finish, offers: Sequence[Offer] = ()) -> None:
        self._client = client
        self._finish = finish
        self._offers = offers
        self._links: list[Link] = []
        """All connections so far; the last one is, or was, the present one."""
        self._next: asyncio.Queue[tuple[Hello, Ends]] = asyncio.Queue()
        self._acceptor: Acceptor | None = None

    async def serve(self, hello: Hello, ends: Ends) -> None:
        """Answer the client until it does not come back, and all its work is over."""
        connection: tuple[Hello, Ends] | None = (hello, ends)
        try:
            while connection is not None:
                await self._talk(*connection)
                connection = await self._next_connection()
            await self._accept_no_more()  # a client that comes now finds nobody, and is served anew
            for link in self._links:
                await link.settle()
            await self._settle()
        finally:
            await self._accept_no_more()
            for offer in self._offers:
                await offer.leave()

    async def _accept_no_more(self) -> None:
        """Idempotent."""
        if self._acceptor is None:
            return
        host_socket(paths(), self._client).unlink(missing_ok=True)
        acceptor, self._acceptor = self._acceptor, None
        await acceptor.close()
        while not self._next.empty():
            _, (_, writer) = self._next.get_nowait()
            writer.close()

    async def _talk(self, hello: Hello, ends: Ends) -> None:
        """Answer requests over one connection until it ends."""
        link = Link(*ends, name="the client", answer=self._answer)
        more = (offer.capability for offer in self._offers)
        ends[1].write(welcome(*more, resumed=bool(self._links)).encode(hello))
        self._links.append(link)
        helpers = [
            asyncio.create_task(link.watch(), name="quicksand-watch"),
            asyncio.create_task(link.show_life(), name="quicksand-alive"),
        ]
        for offer in self._offers:
            offer.back()
        try:
            await link.run()
        finally:
            for helper in helpers:
                helper.cancel()
        for offer in self._offers:
            offer.away()
        if link.is_left:
            for offer in self._offers:
                await offer.leave()

    async def _settle(self) -> None:
        """Wait until all kept work is over."""
        for offer in self._offers:
            await offer.settle()

    @property
    def _is_empty(self) -> bool:
        return all(offer.is_empty for offer in self._offers)

    async def _next_connection(self) -> tuple[Hello, Ends] | None:
        """Wait for the client's next connection, as long as something is kept for it."""
        coming = asyncio.create_task(self._next.get(), name="quicksand-next")
        ended = asyncio.create_task(self._settle(), name="quicksand-settle")
        try:
            await asyncio.sleep(0)
            if self._links[-1].is_left or self._is_empty:
                return coming.result() if coming.done() else None
            await asyncio.wait([coming, ended], return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            ended.cancel()

    async def _answer(self, request: Request) -> None:
        match request.method:
            case "agent":
                await relay(request, self._finish)
            case "ping":
                request.answer()
            case _:
                for offer in self._offers:
                    if request.method in offer.methods:
                        await offer.answer(request, self._await_return)
                        return
                request.refuse("no_such_method", f"there is no {request.method:.80}")

    async def _await_return(self) -> None:
        """Listen for the client's next connection, as soon as the first answer is kept."""
        if self._acceptor is None:
            make_private_dir(paths().runtime)
            listening = bind_private(host_socket(paths(), self._client))
            self._acceptor = Acceptor([listening], self._take, name="quicksand-again")
            await remove_abandoned(paths().runtime, HOST_SOCKETS)

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take the client's next connection, and end the present one."""
        with contextlib.ExitStack() as unless_taken:
            unless_taken.callback(writer.close)
            with contextlib.suppress(RemoteError, EOFError, OSError):
                hello, _ = await read_hello(reader)
                if hello.client == self._client and hello.protocol == PROTOCOL:
                    unless_taken.pop_all()
                    self._next.put_nowait((hello, (reader, writer)))
                    another = "the client came over another connection"
                    self._links[-1].end(RemoteUnreachableError(another))
