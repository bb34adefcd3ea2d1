"""Connections to services in a guest, and from it, and datagrams, carried by its agent: they need
no network card, and reach programs on the guest's own loopback."""

from __future__ import annotations

import contextlib
import struct
from typing import TYPE_CHECKING, Any, Final

from quicksand.base.arguments import checked_methods
from quicksand.base.errors import AgentProtocolError, AgentRefusedError, ConfigError
from quicksand.guest.agent import values
from quicksand.guest.agent.channel import ALL_OUTPUT
from quicksand.guest.carried import Carried, open_channel, require_able
from quicksand.guest.execution import Command

if TYPE_CHECKING:
    from quicksand.guest.agent.channel import Channel
    from quicksand.guest.agent.session import Session


CAPABILITY = "dial"
"""The capability of dialling, listening and serving SFTP, in an agent's hello."""

PORT_MAX = 65535


@checked_methods
class GuestConnection(Carried):
    """A connection to or from a program in the guest. Bytes are read and written at the other
    side's pace. One task may read while another one writes.

    Leaving ``async with`` closes it. Unless both sides have sent their last, the other side then
    sees a reset, and its unread data may be lost.
    """

    def __init__(self, session: Session, channel: Channel, peer_port: int | None = None) -> None:
        super().__init__(session, channel)
        self._is_over = self._is_finished = False
        self._is_shut = False
        self.peer_port = peer_port
        """The port of the program that connected to a `GuestListener`, if it has one."""

    async def read(self) -> bytes:
        """Return the next bytes, 256 KiB at most; b"" once the other side has sent its last.

        Raises AgentRefusedError with the guest's ``errno`` if the connection broke, RevertedError
        if the sandbox was reverted, AgentUnreachableError or MachineError if the guest is gone.
        """
        while not self._is_over:
            item = await self._channel.read()
            if isinstance(item, tuple):
                return item[1]
            self._take(item)
        return b""

    def _take(self, event: dict[str, Any]) -> None:
        match event.get("event"):
            case "eof":
                self._is_over = True
            case "end":
                self._is_over = self._is_finished = True
                if (error := event.get("error")) is not None:
                    raise self._channel.refusal(error, "the connection was broken off")
            case _:
                raise AgentProtocolError("the agent sent an event that a connection does not have")

    async def finish(self) -> None:
        """Wait until both sides have sent their last, and the other side has taken everything:
        after `write_eof`, and once `read` has returned b"". Raises as `read`."""
        while not self._is_finished:
            item = await self._channel.read()
            if isinstance(item, tuple):
                raise AgentProtocolError("the agent sent data after the last of a connection")
            self._take(item)

    async def write(self, data: bytes | memoryview) -> None:
        """Send bytes, waiting while the other side does not take them. Bytes that it no longer
        takes are dropped: `read` tells how the connection ended. Raises as `read` if the guest is
        gone."""
        await self._channel.write(data)

    def write_eof(self) -> None:
        """Tell the other side that nothing more comes. It may still send. Idempotent."""
        if not self._is_shut:
            self._is_shut = True
            self._channel.write_eof()


class GuestListener(Carried):
    """A listening socket in the guest, made by `Sandbox.listen`. At most 64 connections wait until
    they are accepted, each for 10 s at most; more wait in the guest's kernel. Leaving ``async
    with`` closes it; accepted connections go on."""

    def __init__(self, session: Session, channel: Channel, port: int | None) -> None:
        super().__init__(session, channel)
        self.port = port
        """Its port; None for a Unix socket."""

    async def accept(self) -> GuestConnection:
        """Wait for the next connection. Raises as `GuestConnection.read` does."""
        while True:
            event = await self._channel.read()
            if isinstance(event, tuple) or event.get("event") not in ("accepted", "end"):
                raise AgentProtocolError("the agent sent what a listener does not send")
            if event["event"] == "end":
                raise AgentProtocolError("the agent has ended the listener")
            number = event.get("connection")
            try:
                channel = await open_channel(self._session, "accept", {"connection": number})
            except AgentRefusedError as error:
                if error.code != "not_found":
                    raise
                continue  # it has waited too long, and was closed
            return GuestConnection(self._session, channel, _port(event.get("port")))


async def dial(session: Session, address: dict[str, Any]) -> GuestConnection:
    """Connect to an `address`. Raises AgentRefusedError with the guest's ``errno``, StateError if
    too many channels are open or the agent is too old."""
    require_able(session, CAPABILITY, "connections")
    return GuestConnection(session, await open_channel(session, "dial", address))


async def listen(session: Session, address: dict[str, Any]) -> GuestListener:
    """Listen at an `address`. Raises as `dial` does."""
    require_able(session, CAPABILITY, "connections")
    channel = await open_channel(session, "listen", address, streams=())
    reply = await channel.opened()
    return GuestListener(session, channel, _port(reply.get("port")))


async def open_sftp(session: Session, user: str | None) -> Command:
    """Start the agent's SFTP server (version 3) with the rights of a user: it speaks on the
    command's stdin and stdout. Raises as `dial`."""
    require_able(session, CAPABILITY, "connections")
    params = {} if user is None else {"user": user}
    channel = await open_channel(session, "sftp", params, streams=ALL_OUTPUT)
    return Command(session, channel, 0, None)


def address(
    port: int | None, host: str, path: str | None, user: str | None, *, least: int = 1
) -> dict[str, Any]:
    """Return the agent's parameters for a TCP port from ``least`` up or the path of a Unix socket.
    Raises ConfigError."""
    if (port is None) == (path is None):
        raise ConfigError("an address is either a port or the path of a Unix socket")
    if path is not None:
        return {"path": path} if user is None else {"path": path, "user": user}
    if not isinstance(port, int) or not least <= port <= PORT_MAX:
        raise ConfigError(f"a port is a number from {least} to {PORT_MAX}, not {port!r:.80}")
    return {"host": host, "port": port}


def _port(value: object) -> int | None:
    """Return a port reported by the agent; None if it makes no sense."""
    with contextlib.suppress(ValueError):
        port = values.whole(value)
        return port if 0 < port <= PORT_MAX else None
    return None


DATAGRAMS = "dial_udp"
"""The capability of carrying datagrams, in an agent's hello."""

DATAGRAM_MAX: Final = 65_507
"""Bytes of the largest datagram that IPv4 carries: 65,535 less its header's 20 and UDP's 8."""

_LENGTH = struct.Struct("!H")
"""The header of each datagram in the stream (docs/internals/agent-protocol.md)."""


@checked_methods
class GuestDatagrams(Carried):
    """A UDP socket in the guest that is connected to a service, made by `Sandbox.dial_udp`. As on a
    network, datagrams may be lost silently: if nobody listens, if the guest cannot send them, or if
    they are not read (the agent then drops the oldest). One task may receive while others send.

    Leaving ``async with`` closes it.
    """

    def __init__(self, session: Session, channel: Channel) -> None:
        super().__init__(session, channel)
        self._arrived = Splitter()

    async def receive(self) -> bytes:
        """Wait for the next datagram, which may be empty, and return it.

        Raises AgentRefusedError with the guest's ``errno`` if the socket failed, RevertedError if
        the sandbox was reverted, AgentUnreachableError or MachineError if the guest is gone.
        """
        while (found := self._arrived.next()) is None:
            item = await self._channel.read()
            if isinstance(item, tuple):
                self._arrived.push(item[1])
                continue
            self._end(item)
        return found

    def _end(self, event: dict[str, Any]) -> None:
        if event.get("event") == "end" and (error := event.get("error")) is not None:
            raise self._channel.refusal(error, "the socket has failed")
        raise AgentProtocolError("the agent sent an event that a datagram socket does not have")

    async def send(self, data: bytes | memoryview) -> None:
        """Send a datagram, waiting while the guest takes none. A cancelled send has sent all or
        nothing. Raises ConfigError if it has more than `DATAGRAM_MAX` bytes, and as `receive` if
        the guest is gone."""
        if len(data) > DATAGRAM_MAX:
            raise ConfigError(f"a datagram has at most {DATAGRAM_MAX} bytes, not {len(data)}")
        await self._channel.write_whole(_LENGTH.pack(len(data)) + data)


class Splitter:
    """Finds datagrams in pieces of a stream."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def push(self, piece: bytes) -> None:
        self._waiting += piece

    def next(self) -> bytes | None:
        """Return the next datagram; None if more bytes are needed. Raises AgentProtocolError for an
        impossible one."""
        if len(self._waiting) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._waiting)
        if length > DATAGRAM_MAX:
            raise AgentProtocolError("the agent sent a datagram that is too large")
        end = _LENGTH.size + length
        if len(self._waiting) < end:
            return None
        found = bytes(self._waiting[_LENGTH.size : end])
        del self._waiting[:end]
        return found


async def dial_udp(session: Session, address: dict[str, Any]) -> GuestDatagrams:
    """Make a socket that is connected to an `address`. Raises AgentRefusedError with the guest's
    ``errno``, StateError if too many channels are open or the agent is too old."""
    require_able(session, DATAGRAMS, "datagrams")
    channel = await open_channel(session, "dial", {**address, "protocol": "udp"})
    return GuestDatagrams(session, channel)
