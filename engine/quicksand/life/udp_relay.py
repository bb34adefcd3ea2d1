"""Forwards of UDP ports, in the process that carries a sandbox's forwards (forwarder.py). Each
client has a socket of its own in the guest, so that the guest's answers can be returned to it."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

from quicksand.base.errors import QuicksandError, StateError
from quicksand.base.listening import bind
from quicksand.guest.connections import DATAGRAM_MAX, GuestDatagrams
from quicksand.records.port_forwards import FORWARDS_MAX, PortForward, Protocol

SILENCE_S: Final = 60.0
"""Seconds without a datagram in either direction after which a client's socket is closed."""

CLIENTS_MAX: Final = 256
"""The most clients at a time. A further one replaces the one that was silent for the longest."""

WAITING_MAX = 128 * 1024
"""The most bytes of one client's datagrams that wait for the guest."""

OVERHEAD = 96
"""Bytes that a datagram takes in memory besides its own."""

Dial = Callable[[int], AbstractAsyncContextManager[GuestDatagrams]]
"""Connects a socket to a port of the guest. Raises QuicksandError."""


class Waiting:
    """Datagrams that wait for the guest. When they have too many bytes, the oldest are dropped, as
    networks do."""

    def __init__(self, most: int = WAITING_MAX) -> None:
        self._most = most
        self._datagrams: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()

    def put(self, data: bytes) -> None:
        self._datagrams.append(data)
        self._size += len(data) + OVERHEAD
        while self._size > self._most and len(self._datagrams) > 1:
            self._take()
        self._news.set()

    def _take(self) -> bytes:
        data = self._datagrams.popleft()
        self._size -= len(data) + OVERHEAD
        return data

    async def get(self) -> bytes:
        """Wait for the oldest datagram."""
        while not self._datagrams:
            self._news.clear()
            await self._news.wait()
        return self._take()


class _Door(asyncio.DatagramProtocol):
    """One of the sockets of a forward."""

    def __init__(self, take: Callable[[_Door, bytes, Any], None]) -> None:
        self._take = take
        self._transport: asyncio.DatagramTransport | None = None
        self._is_full = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if len(data) <= DATAGRAM_MAX:
            self._take(self, data, addr)

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False

    def send(self, data: bytes, address: Any) -> None:
        """Send a datagram, or drop it if this host takes none now."""
        if self._transport is not None and not self._is_full:
            self._transport.sendto(data, address)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass(eq=False)
class _Client:
    """A sender to one of our ports, which has a socket in the guest."""

    door: _Door
    address: Any
    guest_port: int
    last: float
    """The time of the last datagram in either direction, by the loop's clock."""
    waiting: Waiting = field(default_factory=Waiting)
    task: asyncio.Task[None] | None = None


class UdpRelay:
    """The forwards of UDP ports of one sandbox. All of it runs on one event loop."""

    def __init__(
        self, dial: Dial, *, silence_s: float = SILENCE_S, clients_max: int = CLIENTS_MAX
    ) -> None:
        self._dial = dial
        self._silence_s = silence_s
        self._clients_max = clients_max
        self._doors: dict[int, tuple[PortForward, list[_Door]]] = {}
        """The forwards and their sockets, by the host's port."""
        self._clients: dict[tuple[_Door, Any], _Client] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        """The tasks of the clients, and of some that have just ended."""

    @property
    def forwards(self) -> tuple[PortForward, ...]:
        return tuple(forward for forward, _ in self._doors.values())

    @property
    def clients(self) -> int:
        """The number of clients at this moment."""
        return len(self._clients)

    async def add(self, wanted: PortForward) -> PortForward:
        """Begin a forward; return it with the chosen port. Raises StateError, PortInUseError,
        HostError."""
        if (found := self._doors.get(wanted.host)) is not None:
            if found[0] == wanted:
                return wanted
            raise StateError(
                f"port {wanted.host}/udp is forwarded to port {found[0].guest} already"
            )
        if len(self._doors) >= FORWARDS_MAX:
            raise StateError(f"{FORWARDS_MAX} forwards are the most")
        sockets = bind(wanted.host)
        made = PortForward(sockets[0].getsockname()[1], wanted.guest, Protocol.UDP)
        await self.serve_at(made, sockets)
        return made

    async def serve_at(self, forward: PortForward, sockets: Sequence[socket.socket]) -> None:
        """Begin a forward whose sockets exist; they then belong to this relay."""
        loop = asyncio.get_running_loop()

        def take(door: _Door, data: bytes, address: Any) -> None:
            self._take(door, data, address, forward.guest)

        doors: list[_Door] = []
        self._doors[forward.host] = forward, doors
        for one in sockets:
            _, door = await loop.create_datagram_endpoint(lambda: _Door(take), sock=one)
            doors.append(door)

    async def remove(self, host: int) -> None:
        """End a forward, and its clients' sockets in the guest. Raises StateError if there is
        none."""
        if (found := self._doors.pop(host, None)) is None:
            raise StateError(f"port {host}/udp is not forwarded")
        _, doors = found
        for door in doors:
            door.close()
        ended = [client for client in self._clients.values() if client.door in doors]
        tasks = [task for client in ended if (task := self._end(client)) is not None]
        if tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """End all forwards. Idempotent."""
        for host in list(self._doors):
            await self.remove(host)
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _take(self, door: _Door, data: bytes, address: Any, guest_port: int) -> None:
        """Take a datagram of a client, which may be new."""
        now = asyncio.get_running_loop().time()
        client = self._clients.get((door, address))
        if client is None:
            if len(self._clients) >= self._clients_max:
                self._end(min(self._clients.values(), key=lambda client: client.last))
            client = _Client(door, address, guest_port, now)
            self._clients[door, address] = client
            client.task = asyncio.create_task(self._serve(client), name="quicksand-udp-client")
            self._tasks.add(client.task)
            client.task.add_done_callback(self._tasks.discard)
        client.last = now
        client.waiting.put(data)

    def _end(self, client: _Client) -> asyncio.Task[None] | None:
        """Close a client's socket. Its next datagram makes a new one."""
        self._clients.pop((client.door, client.address), None)
        if client.task is not None:
            client.task.cancel()
        return client.task

    async def _serve(self, client: _Client) -> None:
        """Carry a client's datagrams until it is silent or the guest is gone. After a revert the
        guest is another one, in which the next datagram gets a new socket."""
        try:
            async with self._dial(client.guest_port) as guest, asyncio.TaskGroup() as both:
                carrying = [
                    both.create_task(_to_guest(client, guest)),
                    both.create_task(_to_client(client, guest)),
                ]
                await self._silence(client)
                for task in carrying:
                    task.cancel()
        except* (QuicksandError, OSError):
            pass  # its datagrams are lost
        finally:
            if self._clients.get((client.door, client.address)) is client:
                del self._clients[client.door, client.address]

    async def _silence(self, client: _Client) -> None:
        """Wait until a client has been silent for long enough."""
        loop = asyncio.get_running_loop()
        left = self._silence_s
        while left > 0:
            await asyncio.sleep(left)
            left = client.last + self._silence_s - loop.time()


async def _to_guest(client: _Client, guest: GuestDatagrams) -> None:
    while True:
        await guest.send(await client.waiting.get())


async def _to_client(client: _Client, guest: GuestDatagrams) -> None:
    loop = asyncio.get_running_loop()
    while True:
        data = await guest.receive()
        client.last = loop.time()
        client.door.send(data, client.address)
