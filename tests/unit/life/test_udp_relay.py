"""Forwards of UDP ports, with a guest that is played."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest
from quicksand.base.errors import AgentUnreachableError, PortInUseError, StateError
from quicksand.guest.connections import GuestDatagrams
from quicksand.life.udp_relay import OVERHEAD, UdpRelay, Waiting
from quicksand.records.port_forwards import PortForward, Protocol

LIMIT_S = 60
DNS = PortForward(0, 53, Protocol.UDP)


class Guest:
    """Answers each datagram with the number of the socket that it came to."""

    def __init__(self) -> None:
        self.made = self.refused = 0
        self.open: set[int] = set()
        self.is_there = True
        self.gone = asyncio.Event()

    @contextlib.asynccontextmanager
    async def dial(self, port: int) -> AsyncIterator[GuestDatagrams]:
        assert port == DNS.guest
        if not self.is_there:
            self.refused += 1
            raise AgentUnreachableError("the guest is gone")
        self.made += 1
        number = self.made
        self.open.add(number)
        try:
            yield cast("GuestDatagrams", Socket(self, number))
        finally:
            self.open.discard(number)


class Socket:
    def __init__(self, guest: Guest, number: int) -> None:
        self._guest, self._number = guest, number
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        self._answers.put_nowait(b"%d:%s" % (self._number, data))

    async def receive(self) -> bytes:
        answer = asyncio.ensure_future(self._answers.get())
        gone = asyncio.ensure_future(self._guest.gone.wait())
        try:
            await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                raise AgentUnreachableError("the guest is gone")
            return answer.result()
        finally:
            answer.cancel()
            gone.cancel()


@contextlib.asynccontextmanager
async def relaying(guest: Guest, **options: Any) -> AsyncIterator[tuple[UdpRelay, int]]:
    relay = UdpRelay(guest.dial, **options)
    try:
        made = await relay.add(DNS)
        yield relay, made.host
    finally:
        await relay.close()
    assert not guest.open


@contextlib.contextmanager
def client(port: int, host: str = "127.0.0.1") -> Any:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.connect((host, port))
        yield made


async def ask(made: socket.socket, data: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(LIMIT_S):
        await loop.sock_sendall(made, data)
        return await loop.sock_recv(made, 65536)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_each_client_has_a_socket_of_its_own_in_the_guest() -> None:
    guest = Guest()
    async with relaying(guest) as (relay, port):
        with client(port) as one, client(port) as two:
            assert await ask(one, b"a") == b"1:a"
            assert await ask(two, b"b") == b"2:b"
            assert await ask(one, b"") == b"1:"
            largest = bytes(65_000)
            assert await ask(one, largest) == b"1:" + largest
        with contextlib.suppress(OSError), client(port, "::1") as three:
            assert await ask(three, b"c") == b"3:c"
        assert relay.forwards == (PortForward(port, 53, Protocol.UDP),)
        await relay.remove(port)
        assert not relay.forwards
        assert not relay.clients
        assert not guest.open
        with pytest.raises(StateError):
            await relay.remove(port)


async def test_a_client_that_is_silent_is_forgotten() -> None:
    guest = Guest()
    async with relaying(guest, silence_s=0.2) as (relay, port):
        with client(port) as one:
            assert await ask(one, b"a") == b"1:a"
            await until(lambda: not relay.clients and not guest.open)
            assert await ask(one, b"b") == b"2:b"


async def test_one_more_takes_the_place_of_the_one_that_was_silent_for_the_longest() -> None:
    guest = Guest()
    async with relaying(guest, clients_max=2) as (relay, port):
        with client(port) as one, client(port) as two, client(port) as three:
            await ask(one, b"a")
            await ask(two, b"b")
            await ask(one, b"c")
            assert await ask(three, b"d") == b"3:d"
            await until(lambda: guest.open == {1, 3})
            assert relay.clients == 2
            assert await ask(one, b"e") == b"1:e"


async def test_after_a_revert_the_next_datagram_gets_a_new_socket() -> None:
    guest = Guest()
    async with relaying(guest) as (relay, port):
        with client(port) as one:
            assert await ask(one, b"a") == b"1:a"
            guest.is_there = False
            guest.gone.set()
            await until(lambda: not relay.clients)
            await asyncio.get_running_loop().sock_sendall(one, b"lost")
            await until(lambda: guest.refused > 0 and not relay.clients)
            guest.is_there = True
            guest.gone.clear()
            assert await ask(one, b"b") == b"2:b"


async def test_ports_that_are_taken_are_named() -> None:
    guest = Guest()
    async with relaying(guest) as (relay, port):
        same = PortForward(port, 53, Protocol.UDP)
        assert await relay.add(same) == same
        with pytest.raises(StateError, match="forwarded to port 53 already"):
            await relay.add(PortForward(port, 54, Protocol.UDP))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
            taken.bind(("127.0.0.1", 0))
            number = taken.getsockname()[1]
            with pytest.raises(PortInUseError, match=f"127.0.0.1:{number}/udp is in use"):
                await relay.add(PortForward(number, 53, Protocol.UDP))


async def test_what_waits_for_the_guest_is_bounded_and_the_oldest_goes() -> None:
    waiting = Waiting(3 * (10 + OVERHEAD))
    for number in range(9):
        waiting.put(b"%010d" % number)
    assert [int(await waiting.get()) for _ in range(3)] == [6, 7, 8]
    getting = asyncio.create_task(waiting.get())
    await asyncio.sleep(0)
    waiting.put(bytes(65_507))  # the largest one fits alone
    assert len(await asyncio.wait_for(getting, LIMIT_S)) == 65_507
