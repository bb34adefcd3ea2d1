"""A far end as a process of its own."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.errors import RemoteProtocolError, RemoteRefusedError, RemoteUnreachableError
from quicksand.base.listing import own_sockets
from quicksand.base.paths import Paths
from quicksand.records.host_sockets import HOST_SOCKETS, host_socket
from quicksand.remote import connection as connecting
from quicksand.remote import hello as greeting
from quicksand.remote import peer_link as linking
from quicksand.remote.connection import Connection
from quicksand.remote.destination import Destination
from quicksand.remote.hello import Hello, read_hello
from quicksand.remote.serving import _Service as Service

from tests.unit.remote.far import make_ssh, two_ends, until

HELLO = Hello(nonce="0" * 32, client="0" * 32)


@pytest.fixture
async def near(
    places: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Connection]:
    """A connection to a far end on this machine. At the end nothing of it is left."""
    make_ssh(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(connecting, "AGAIN_S", (0.05, 0.2))
    async with Connection(Destination.parse("ssh://box"), asks=False) as connection:
        yield connection
    await until(lambda: not own_sockets(places.runtime, HOST_SOCKETS), "the far end to end")


async def test_a_far_end_that_is_silent_is_given_up(
    near: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signs of life come every 15 s."""
    monkeypatch.setattr(linking, "SILENCE_MAX_S", 0.3)
    await near.open()
    async with asyncio.timeout(60):
        await near.link.ended.wait()
    with pytest.raises(RemoteUnreachableError, match="no sign of life"):
        await near.link.request("ping")


async def no_revert(*_: object) -> None:
    """In place of what finishes a revert."""


async def test_a_far_end_gives_signs_of_life(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linking, "ALIVE_EVERY_S", 0.01)
    (reader, writer), there = await two_ends()
    far = asyncio.create_task(Service("0" * 32, no_revert).serve(HELLO, there))
    async with asyncio.timeout(60):
        await reader.readuntil(b'{"event":"alive"}')
        writer.close()
        await far


class Leaving:
    """An offer that takes its time to let go of what it keeps."""

    capability = "leaving"
    methods = ()
    is_empty = True

    def __init__(self) -> None:
        self.is_leaving, self.may_leave = asyncio.Event(), asyncio.Event()

    async def answer(self, request: object, before_keeping: object) -> None: ...

    def away(self) -> None: ...

    def back(self) -> None: ...

    async def leave(self) -> None:
        self.is_leaving.set()
        await self.may_leave.wait()

    async def settle(self) -> None: ...


async def test_who_comes_as_a_far_end_leaves_is_not_kept_waiting(places: Paths) -> None:
    (_, writer), there = await two_ends()
    offer = Leaving()
    service = Service("0" * 32, no_revert, [offer])
    await service._await_return()
    far = asyncio.create_task(service.serve(HELLO, there))
    reader, again = await asyncio.open_unix_connection(host_socket(places, "0" * 32))
    writer.close()
    async with asyncio.timeout(60):
        await offer.is_leaving.wait()
        assert await reader.read() == b""
        assert not own_sockets(places.runtime, HOST_SOCKETS)
        offer.may_leave.set()
        await far
    again.close()


async def test_who_says_no_hello_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greeting, "HELLO_S", 0.02)
    async with asyncio.timeout(60):
        with pytest.raises(RemoteProtocolError, match="nobody said hello"):
            await read_hello(asyncio.StreamReader())


async def test_an_unknown_method_is_refused_as_such(near: Connection) -> None:
    with pytest.raises(RemoteRefusedError) as caught:
        await near.link.request("dance")
    assert caught.value.code == "no_such_method"
