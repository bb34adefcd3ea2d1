"""The near end of SSH channels, between a client and a guest that are played."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncssh
import pytest
from quicksand.base.errors import AgentRefusedError
from quicksand.life import forwarder

from quicksand_tui.cli.ssh.server import ForwardedTcp, GuestServer
from quicksand_tui.cli.ssh.sessions import QUEUE_MAX, Tasks
from tests.each import each

LIMIT_S = 60
MIB = 1024 * 1024


class Service:
    """A connection to a service of the guest."""

    def __init__(self, *, sends: int = 0, takes: bool = True) -> None:
        self.sends, self.takes = sends, takes
        self.sent = 0
        self.begins = asyncio.Event()
        self.over, self.closed, self.taken = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def read(self) -> bytes:
        if self.sent < self.sends:
            await self.begins.wait()
            self.sent += 64 * 1024
            return bytes(64 * 1024)
        await self.over.wait()
        return b""

    async def write(self, data: bytes) -> None:
        self.taken.set()
        if not self.takes:
            await asyncio.Event().wait()

    def write_eof(self) -> None:
        pass

    async def finish(self) -> None:
        """It is gone altogether, as its kernel tells whoever writes."""
        await self.taken.wait()
        raise AgentRefusedError("broken pipe", code="io")

    def close(self) -> None:
        self.closed.set()


class Server(GuestServer):
    """Lets everybody in, and leads to one service."""

    def __init__(self, service: Any) -> None:
        super().__init__(LookupError(), Tasks())  # type: ignore[arg-type]
        self._service = service

    async def begin_auth(self, username: str) -> bool:
        return False

    async def connection_requested(self, *_: Any) -> ForwardedTcp:
        return ForwardedTcp(self._service, self._tasks)


class Silent(asyncssh.SSHTCPSession[bytes]):
    """The client's end of a channel."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()

    def eof_received(self) -> bool:
        return True  # this end may still send

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


class Pair:
    """A client, its connection, and the server."""

    def __init__(self, service: Service) -> None:
        self.server = Server(service)

    async def __aenter__(self) -> Pair:
        self.acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: self.server,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
        )
        port = self.acceptor.get_port()
        self.client = await asyncssh.connect(
            "127.0.0.1", port, username="x", known_hosts=None, config=None, agent_path=None
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.client.abort()
        self.acceptor.close()
        await self.server._tasks.end(0)

    async def open(self, window: int = 2 * MIB) -> tuple[Any, Silent]:
        channel, session = await self.client.create_connection(
            Silent, "127.0.0.1", 80, encoding=None, window=window
        )
        assert isinstance(session, Silent)
        return channel, session


@each("rekeys", [False, True])
async def test_a_client_that_reads_nothing_costs_no_memory_whatever_its_window(
    rekeys: bool,
) -> None:
    """Neither if it begins to exchange keys, and does not go on with that."""
    service = Service(sends=64 * MIB)
    async with Pair(service) as pair:
        async with asyncio.timeout(LIMIT_S):
            await pair.open(window=2**31)
            pair.client._transport.pause_reading()  # type: ignore[union-attr]
            if rekeys:
                pair.client._send_kexinit()
                pair.client._kexinit_sent = True
                while pair.server.connection is None or pair.server.connection._kex_complete:
                    await asyncio.sleep(0.01)
            service.begins.set()
            before = -1
            while before != service.sent:  # until it stands still
                before = service.sent
                await asyncio.sleep(0.3)
        assert service.sent < 32 * MIB  # most of it is in the sockets of the kernel
        pair.client._transport.resume_reading()  # type: ignore[union-attr]
        async with asyncio.timeout(LIMIT_S):
            while service.sent < service.sends:
                await asyncio.sleep(0.01)


async def test_a_channel_that_is_closed_while_nobody_reads_from_it_is_noticed() -> None:
    service = Service(takes=False)
    async with Pair(service) as pair, asyncio.timeout(LIMIT_S):
        channel, _ = await pair.open()
        channel.write(bytes(QUEUE_MAX))
        await service.taken.wait()
        channel.write(bytes(4 * QUEUE_MAX))
        channel.close()
        await service.closed.wait()


async def test_a_client_does_not_send_for_ever_to_a_service_that_is_gone() -> None:
    service = Service()
    service.over.set()
    async with Pair(service) as pair, asyncio.timeout(LIMIT_S):
        channel, session = await pair.open()
        channel.write(b"upload")
        await session.lost.wait()
        assert service.closed.is_set()


async def test_a_forwarder_resets_who_sends_to_a_service_that_is_gone() -> None:
    service = Service()
    service.over.set()
    carried: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await forwarder.carry(service, reader, writer)  # type: ignore[arg-type]
            carried.set_result(None)
        except BaseExceptionGroup as error:
            carried.set_result(error)
        finally:
            writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"upload")
        error = await asyncio.wait_for(carried, LIMIT_S)
        writer.close()
    with pytest.raises(ExceptionGroup):
        assert error is not None
        raise error
