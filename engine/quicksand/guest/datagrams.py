"""Datagrams to a service in a guest, and from it, carried by its agent."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from quicksand.base.errors import AgentProtocolError, ConfigError
from quicksand.guest.carried import Carried, open_channel, require_able

if TYPE_CHECKING:
    from quicksand.guest.agent.channel import Channel
    from quicksand.guest.agent.session import Session

CAPABILITY = "dial_udp"
"""The capability of carrying datagrams, in an agent's hello."""

DATAGRAM_MAX: Final = 65_507
"""Bytes of the largest datagram that IPv4 carries: 65,535 less its header's 20 and UDP's 8."""

_LENGTH = struct.Struct("!H")
"""The header of each datagram in the stream (docs/internals/agent-protocol.md)."""


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
    require_able(session, CAPABILITY, "datagrams")
    channel = await open_channel(session, "dial", {**address, "protocol": "udp"})
    return GuestDatagrams(session, channel)
