"""The gateway over SSH itself, with a sandbox that is played; no VM runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import asyncssh
import pytest
from quicksand.base.errors import AgentUnreachableError
from quicksand.base.paths import Paths
from quicksand.guest.users import Login
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.sandbox import Sandbox

from quicksand_tui.cli import runner
from quicksand_tui.cli.ssh import gateway as module
from quicksand_tui.cli.ssh.gateway import Gateway, serve_at
from quicksand_tui.cli.ssh.server import CHANNELS_MAX

LIMIT_S = 60


class Played:
    """A sandbox whose login may take for ever, and whose services send nothing."""

    def __init__(self) -> None:
        self.asked, self.let_in = asyncio.Event(), asyncio.Event()
        self.let_in.set()
        self.given_up = self.closed = 0
        self.ended = asyncio.Event()

    async def find_user(self, user: str | None) -> Login:
        self.asked.set()
        try:
            await self.let_in.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return Login(name="root", uid=0, gid=0, home="/root", shell="/bin/sh")

    async def wait_disconnected(self) -> AgentUnreachableError:
        await asyncio.Event().wait()
        raise AssertionError

    async def dial(self, *_: Any, **__: Any) -> Silent:
        return Silent()

    def close(self) -> None:
        self.closed += 1


class Silent:
    """A connection on which nothing comes."""

    async def read(self) -> bytes:
        await asyncio.Event().wait()
        return b""

    def close(self) -> None:
        pass


@dataclass
class Place:
    """A gateway that listens, and what belongs to it."""

    gateway: Gateway
    port: int
    key: asyncssh.SSHKey
    sandbox: Played
    said: list[str]
    clients: list[asyncssh.SSHClientConnection] = field(default_factory=list)
    farewells: list[str] = field(default_factory=list)
    """What clients were told as they were sent away."""

    async def connect(self, user: str = "web") -> asyncssh.SSHClientConnection:
        async with asyncio.timeout(LIMIT_S):
            found = await asyncssh.connect(
                "127.0.0.1",
                self.port,
                username=user,
                client_keys=[self.key],
                known_hosts=None,
                config=None,
                agent_path=None,
            )
        self.clients.append(found)
        return found


@pytest.fixture
async def place(
    tmp_path: Path, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    sandbox = Played()

    real, find = runner.attach_here, Registry.named

    def attach_here(name: str) -> Played | Sandbox:
        return sandbox if name in ("web", "abcdabcd") else real(name)

    def named(registry: Registry, name: str) -> Any:
        return MagicMock(id="abcdabcd") if name == "web" else find(registry, name)

    monkeypatch.setattr(module, "attach_here", attach_here)
    monkeypatch.setattr(Registry, "named", named)
    key = asyncssh.generate_private_key("ssh-ed25519")
    keys = tmp_path / "keys"
    keys.write_text(f'sandboxes="web,c*" {key.export_public_key().decode()}')
    os.chmod(keys, 0o600)
    said: list[str] = []
    gateway = Gateway(keys, said.append)
    port = await serve_at("127.0.0.1", 0, asyncssh.generate_private_key("ssh-ed25519"), gateway)
    found = Place(gateway, port, key, sandbox, said)
    send = asyncssh.SSHServerConnection._send_disconnect

    def send_disconnect(self: asyncssh.SSHServerConnection, code: int, why: str, lang: str) -> None:
        found.farewells.append(why)
        send(self, code, why, lang)

    # A client of asyncssh does not say what it was told.
    monkeypatch.setattr(asyncssh.SSHServerConnection, "_send_disconnect", send_disconnect)
    yield found
    for client in found.clients:
        client.abort()
    await gateway.end()


async def until(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), LIMIT_S)


async def settled(place: Place) -> None:
    """Wait until the gateway has cleaned up after all who have left."""
    async with asyncio.timeout(LIMIT_S):
        while place.gateway.servers or place.gateway.tasks._running:
            await asyncio.sleep(0.01)


async def test_a_client_that_leaves_during_its_login_ends_it(place: Place) -> None:
    """It would take one of the guest's few agent ports for as long as the gateway runs."""
    place.sandbox.let_in.clear()
    client = await place.connect()
    await until(place.sandbox.asked)
    client.abort()
    await settled(place)
    assert (place.sandbox.given_up, place.sandbox.closed) == (1, 1)
    assert not place.gateway.inside


async def test_of_sandboxes_that_a_key_is_not_for_nothing_is_told(
    place: Place, places: Paths
) -> None:
    """Neither by a name that is near, nor by an id."""
    registry = Registry(places)
    id_ = "cafe" + new_id()[4:]
    config = SandboxConfig("debian")
    record = Record(
        id=id_,
        name="secret-cache",
        config=config,
        image_digest="d" * 64,
        chain=("/images/debian/disk.qcow2",),
        created=1.0,
        committed=True,
        discard=False,
    )
    os.close(registry.create(record))
    for name in ("cecret-cache", "cafe", id_):
        client = await place.connect(name)
        await asyncio.wait_for(client.wait_closed(), LIMIT_S)
        assert place.farewells == [f"no sandbox is called {name!r}"]
        place.farewells.clear()


async def test_who_is_in_is_logged_once_there_is_a_sandbox(place: Place) -> None:
    place.sandbox.let_in.clear()
    await place.connect("web+root")
    await until(place.sandbox.asked)
    assert not any("in as" in line for line in place.said)
    place.sandbox.let_in.set()
    async with asyncio.timeout(LIMIT_S):
        while not any(line.endswith("web in as root") for line in place.said):
            await asyncio.sleep(0.01)
        unknown = await place.connect("cnone")
        await unknown.wait_closed()
    assert any("cnone sent away: no sandbox is called 'cnone'" in line for line in place.said)
    assert not any("cnone in as" in line for line in place.said)


async def test_keys_are_read_of_a_plain_file_only(place: Place) -> None:
    """Each login would wait for who writes into a FIFO."""
    place.gateway.keys_file.unlink()
    os.mkfifo(place.gateway.keys_file, 0o600)
    with pytest.raises(asyncssh.PermissionDenied):
        await place.connect()
    assert any("it is a FIFO" in line for line in place.said)


async def test_the_end_of_the_gateway_ends_its_connections(place: Place) -> None:
    client = await place.connect()
    await client.open_connection("127.0.0.1", 80)
    await asyncio.wait_for(place.gateway.end(), LIMIT_S)
    assert place.sandbox.closed == 1
    assert not place.gateway.servers
    await asyncio.wait_for(client.wait_closed(), LIMIT_S)
    with pytest.raises(ConnectionRefusedError):
        await place.connect()


async def test_a_connection_has_so_many_channels_and_one_that_ends_gives_its_place_back(
    place: Place,
) -> None:
    client = await place.connect()
    opened = [await client.open_connection("127.0.0.1", 80) for _ in range(CHANNELS_MAX)]
    with pytest.raises(asyncssh.ChannelOpenError) as caught:
        await client.open_connection("127.0.0.1", 80)
    assert caught.value.code == asyncssh.OPEN_RESOURCE_SHORTAGE
    _, writer = opened[0]
    writer.close()
    await writer.wait_closed()
    await client.open_connection("127.0.0.1", 80)


async def test_a_sandbox_has_so_many_connections(place: Place) -> None:
    for _ in range(module.CONNECTIONS_EACH_MAX):
        client = await place.connect()
        await client.open_connection("127.0.0.1", 80)
    one_more = await place.connect()
    with pytest.raises((asyncssh.Error, OSError)):
        await one_more.open_connection("127.0.0.1", 80)
    client.abort()
    async with asyncio.timeout(LIMIT_S):
        while place.gateway.inside["web"] >= module.CONNECTIONS_EACH_MAX:
            await asyncio.sleep(0.01)
    await (await place.connect()).open_connection("127.0.0.1", 80)


async def test_strangers_of_one_address_leave_places_for_others(place: Place) -> None:
    peers = [
        await asyncio.open_connection("127.0.0.1", place.port)
        for _ in range(module.STRANGERS_EACH_MAX + 1)
    ]
    assert await asyncio.wait_for(peers[-1][0].read(), LIMIT_S) == b""
    assert (await asyncio.wait_for(peers[0][0].read(4), LIMIT_S)) == b"SSH-"
    for _, writer in peers:
        writer.close()
    await settled(place)
    assert not place.gateway.strangers
    await place.connect()


async def test_a_client_tries_few_user_names(place: Place) -> None:
    server = place.gateway.make_server()
    for number in range(module.USERS_TRIED_MAX):
        assert await server.begin_auth(f"x{number}")
    with pytest.raises(asyncssh.DisconnectError):
        await server.begin_auth("one-more")


@pytest.mark.parametrize("rounds", range(6))
async def test_who_comes_just_before_the_end_is_sent_away(place: Place, rounds: int) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", place.port)) as client:
        client.setblocking(False)
        for _ in range(rounds):  # of the event loop, in which it is taken step by step
            await asyncio.sleep(0)
        await place.gateway.end()
        async with asyncio.timeout(LIMIT_S):
            with contextlib.suppress(ConnectionError):
                while await loop.sock_recv(client, 1000):
                    pass
    await place.gateway.end()
