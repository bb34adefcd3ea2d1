"""Forwards ports of this machine to ports of a guest on another machine. This program carries them
as long as it uses the sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from quicksand.base.errors import QuicksandError, StateError
from quicksand.base.listening import Acceptor, listen
from quicksand.guest.carried import require_able
from quicksand.hosted.life import FarLife
from quicksand.life.forwarder import carry, reset
from quicksand.life.guest import InGuest
from quicksand.records.port_forwards import PortForward, Protocol, as_protocol, check_port

CONNECTIONS_MAX = 256
"""The most connections of one forward at the same time; further ones are reset."""


@dataclass(frozen=True, slots=True)
class _Forward:
    guest: int
    acceptor: Acceptor


class FarForwarding:
    """The forwards of one sandbox, with the methods `forward` and `unforward` of `Sandbox`."""

    def __init__(self, life: FarLife, guest: InGuest) -> None:
        self._life = life
        self._guest = guest
        self._forwards: dict[int, _Forward] = {}

    @property
    def ports(self) -> dict[int, int]:
        """Guest port -> port of this machine."""
        return {one.guest: port for port, one in self._forwards.items()}

    async def forward(
        self, guest: int, host: int = 0, *, protocol: Protocol | str = Protocol.TCP
    ) -> PortForward:
        """See `Forwarding.forward`; the port is one of this machine."""
        _require_tcp(protocol)
        wanted = PortForward(host=host, guest=guest)
        session = await self._life.session()
        require_able(session, "dial", "connections")
        sockets = listen(wanted.host)
        port = sockets[0].getsockname()[1]
        acceptor = Acceptor(
            sockets,
            lambda r, w: self._serve(guest, r, w),
            name="quicksand-port",
            most=CONNECTIONS_MAX,
            resets=True,
        )
        self._forwards[port] = _Forward(guest, acceptor)
        return PortForward(host=port, guest=guest)

    async def _serve(
        self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with await self._guest.dial(port) as connection:
                await carry(connection, reader, writer)
        except* (QuicksandError, OSError):
            reset(writer)
        except* asyncio.CancelledError:
            reset(writer)
        finally:
            writer.close()

    async def unforward(self, host: int, *, protocol: Protocol | str = Protocol.TCP) -> None:
        """See `Forwarding.unforward`."""
        _require_tcp(protocol)
        check_port("host", host, lowest=1)
        made = self._forwards.pop(host, None)
        if made is None:
            raise StateError(f"port {host} is not forwarded to {self._life.name!r}")
        await made.acceptor.close()

    async def close(self) -> None:
        """End them all."""
        while self._forwards:
            _, made = self._forwards.popitem()
            await made.acceptor.close()


def _require_tcp(protocol: Protocol | str) -> None:
    if as_protocol(protocol) is not Protocol.TCP:
        raise StateError(
            "only TCP is forwarded to a sandbox of another machine",
            hint="dial_udp() reaches it from this program",
        )
