"""Connections that the agent of a real guest carries. It has no network card."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import AgentRefusedError
from quicksand.guest.connections import GuestConnection

from tests.integration.guests import say

pytestmark = pytest.mark.vm

ENOENT, EACCES, ECONNREFUSED = 2, 13, 111
"""Numbers of Linux (errno(3)), which the guest is."""

SERVER = """
import socket, sys, threading
family = socket.AF_UNIX if sys.argv[1].startswith("/") else socket.AF_INET
server = socket.socket(family)
server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
server.bind(sys.argv[1] if family == socket.AF_UNIX else ("127.0.0.1", int(sys.argv[1])))
server.listen(256)  # more than connect at once: no connection waits to be tried again
print("ready", flush=True)
def echo(peer):
    while data := peer.recv(65536):
        peer.sendall(data)
    peer.sendall(b"bye")
    peer.close()
while True:
    threading.Thread(target=echo, args=(server.accept()[0],), daemon=True).start()
"""


@pytest.fixture(scope="module")
def vm_options() -> dict[str, Any]:
    return {"network_mode": "none"}


async def start_echo(vm: Sandbox, place: str) -> Any:
    command = await vm.spawn(["python3", "-c", SERVER, place])
    async for _, data in command.output():
        assert data == b"ready\n"
        return command
    raise AssertionError("it has ended")


async def all_of(connection: GuestConnection) -> bytes:
    pieces = []
    while piece := await connection.read():
        pieces.append(piece)
    return b"".join(pieces)


async def test_a_service_on_the_guests_own_loopback_is_reached(vm: Sandbox) -> None:
    async with await start_echo(vm, "8080"), await vm.dial(8080) as connection:
        await connection.write(b"hello")
        connection.write_eof()
        assert await all_of(connection) == b"hellobye"


async def test_much_goes_both_ways_at_once(vm: Sandbox) -> None:
    block = os.urandom(1 << 20)
    sent, got = hashlib.sha256(), hashlib.sha256()
    async with await start_echo(vm, "8081"), await vm.dial(8081) as connection:

        async def send() -> None:
            for _ in range(4):
                sent.update(block)
                await connection.write(block)
            connection.write_eof()

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(send())
            received = await all_of(connection)
        got.update(received.removesuffix(b"bye"))
    assert got.digest() == sent.digest()


async def test_a_unix_socket_is_dialled_by_the_rights_of_a_user(vm: Sandbox) -> None:
    async with await start_echo(vm, "/root/socket"):
        async with await vm.dial(path="/root/socket") as connection:
            connection.write_eof()
            assert await all_of(connection) == b"bye"
        with pytest.raises(AgentRefusedError) as caught:
            await vm.dial(path="/root/socket", user="nobody")
        assert caught.value.errno == EACCES
    await vm.files.remove("/root/socket")


async def test_refusals_say_why(vm: Sandbox) -> None:
    with pytest.raises(AgentRefusedError) as refused:
        await vm.dial(9)
    assert refused.value.errno == ECONNREFUSED
    with pytest.raises(AgentRefusedError) as missing:
        await vm.dial(path="/no/such/socket")
    assert (missing.value.code, missing.value.errno) == ("not_found", ENOENT)
    with pytest.raises(AgentRefusedError) as unknown:
        await vm.dial(80, host="no-such-name.invalid")
    assert unknown.value.code == "not_found"


async def test_the_hosts_own_loopback_is_not_reached(vm: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(AgentRefusedError):
        await vm.dial(server.getsockname()[1])


async def test_what_listens_here_is_reached_from_the_guest(vm: Sandbox) -> None:
    async with await vm.listen(0) as listener:
        assert listener.port is not None
        client = (
            "import socket; s = socket.create_connection(('127.0.0.1', {})); s.sendall(b'hi');"
            "s.shutdown(1); print(s.recv(9).decode())"
        )
        asking = asyncio.create_task(say(vm, ["python3", "-c", client.format(listener.port)]))
        async with await listener.accept() as connection:
            assert await all_of(connection) == b"hi"
            await connection.write(b"welcome")
            connection.write_eof()
            assert await asking == "welcome"
    with pytest.raises(AgentRefusedError):
        await vm.dial(listener.port)
    with pytest.raises(AgentRefusedError) as caught:
        await vm.listen(0, host="0.0.0.0")
    assert caught.value.code == "forbidden"


async def test_two_hundred_at_once_each_get_their_own_answer(vm: Sandbox) -> None:
    async def ask(number: int) -> None:
        async with await vm.dial(8082) as connection:
            await connection.write(b"%d" % number)
            connection.write_eof()
            assert await all_of(connection) == b"%dbye" % number

    async with await start_echo(vm, "8082"), asyncio.TaskGroup() as tasks:
        for number in range(200):
            tasks.create_task(ask(number))


async def test_users_are_described_as_their_sessions_begin(vm: Sandbox) -> None:
    root = await vm.find_user()
    assert (root.name, root.uid, root.home, root.shell) == ("root", 0, "/root", "/bin/bash")
    assert (await vm.find_user("nobody")).home == "/"
    with pytest.raises(AgentRefusedError) as caught:
        await vm.find_user("../root")
    assert caught.value.code == "not_found"


async def test_sftp_is_served_by_the_rights_of_a_user(vm: Sandbox) -> None:
    init = bytes([0, 0, 0, 5, 1, 0, 0, 0, 3])
    async with await vm.open_sftp("nobody") as server:
        await server.write(init)
        server.close_stdin()
        answer = b"".join([data async for _, data in server.output()])
        assert answer[4:9] == bytes([2, 0, 0, 0, 3])
        assert server.status is not None and server.status.exit_code == 0
