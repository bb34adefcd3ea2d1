"""Connections that come just before their acceptor ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from quicksand.base import listening
from quicksand.base.listening import Acceptor, bind_private

from tests.each import each

CONNECTIONS = 3


class Served:
    """Serves by sending back what comes, and counts."""

    def __init__(self) -> None:
        self.begun = self.ended = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.begun += 1
        try:
            while data := await reader.read(100):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()
            self.ended += 1


def connect(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(path))
    made.setblocking(False)
    return made


async def end_of(client: socket.socket) -> bytes:
    """What the client reads until the end, which a reset is, too."""
    got = b""
    with client, contextlib.suppress(ConnectionError):
        async with asyncio.timeout(30):
            while data := await asyncio.get_running_loop().sock_recv(client, 100):
                got += data
    return got


@each("rounds", range(6))
async def test_who_comes_just_before_the_end_is_known_and_ended(
    tmp_path: Path, rounds: int
) -> None:
    served = Served()
    acceptor = Acceptor([bind_private(tmp_path / "door")], served, name="test")
    clients = [connect(tmp_path / "door") for _ in range(CONNECTIONS)]
    for _ in range(rounds):  # of the event loop, in which they are taken step by step
        await asyncio.sleep(0)
    await acceptor.close()
    begun = served.begun
    for client in clients:
        assert await end_of(client) == b""
    assert (served.begun, served.ended) == (begun, begun)
    with socket.socket(socket.AF_UNIX) as late, pytest.raises(ConnectionRefusedError):
        late.connect(str(tmp_path / "door"))
    await acceptor.close()


async def test_who_has_connected_before_the_end_is_served_within_the_grace(tmp_path: Path) -> None:
    acceptor = Acceptor([bind_private(tmp_path / "door")], Served(), name="test")
    client = connect(tmp_path / "door")
    client.sendall(b"the last key")
    client.shutdown(socket.SHUT_WR)
    await acceptor.close(grace_s=30)
    assert await end_of(client) == b"the last key"


async def test_more_than_may_be_are_closed_or_reset() -> None:
    for resets in (False, True):
        listening = socket.create_server(("127.0.0.1", 0))  # the acceptor closes it
        address = listening.getsockname()
        acceptor = Acceptor([listening], Served(), name="test", most=1, resets=resets)
        first, second = socket.create_connection(address), socket.create_connection(address)
        first.setblocking(False)
        second.setblocking(False)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(30):
            with second, pytest.raises(ConnectionResetError) if resets else _ends():
                assert await loop.sock_recv(second, 1) == b""
            await loop.sock_sendall(first, b"x")
            assert await loop.sock_recv(first, 1) == b"x"
        first.close()
        await acceptor.close()


@contextlib.contextmanager
def _ends() -> Iterator[None]:
    yield


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The errors that the next attempts to accept fail with."""
    errors: list[int] = []
    accept = socket.socket.accept

    def failing(self: socket.socket) -> Any:
        if errors:
            raise OSError(errors.pop(), "short of something")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    monkeypatch.setattr(listening, "SHORT_S", 0.01)
    return errors


async def test_without_descriptors_connections_wait(tmp_path: Path, short: list[int]) -> None:
    acceptor = Acceptor([bind_private(tmp_path / "door")], Served(), name="test")
    short[:] = [errno.EMFILE, errno.ECONNABORTED, errno.EMFILE]
    client = connect(tmp_path / "door")
    client.sendall(b"patient")
    client.shutdown(socket.SHUT_WR)
    assert await end_of(client) == b"patient"
    short.append(errno.EMFILE)
    waiting = connect(tmp_path / "door")
    await acceptor.close()
    assert await end_of(waiting) == b""


async def test_a_socket_takes_the_place_of_one_that_was_left_and_of_nothing_else(
    tmp_path: Path,
) -> None:
    place = tmp_path / "door"
    bind_private(place).close()
    bind_private(place).close()
    assert place.stat().st_mode & 0o777 == 0o600
    place.unlink()
    place.write_text("not ours")
    with pytest.raises(OSError, match="in use"):
        bind_private(place)
    assert place.read_text() == "not ours"
