"""Ports that are forwarded, from a sandbox's start or while it runs, without a network card."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import pytest
from quicksand import PortForward, Sandbox
from quicksand.base.errors import PortInUseError, StateError
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.life.forwarder import reset
from quicksand.records.layout import sandbox_dir
from quicksand.records.port_forwards import Protocol
from quicksand.records.registry import Registry

from tests.conftest import free_port, listens, wait_for
from tests.integration.guests import forwarders, say

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("warm_without_network")]

AT_ONCE = 400
"""More than one client of the agent has channels for."""

MOST = 1000

SERVER = """
import asyncio
async def serve(reader, writer):
    text = await reader.read()
    writer.write(b"guest:" + text)
    await writer.drain()
    writer.close()
class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport):
        self.transport = transport
    def datagram_received(self, data, peer):
        self.transport.sendto(b"%d:" % peer[1] + data, peer)
async def main():
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 8000))
    server = await asyncio.start_server(serve, "127.0.0.1", 8000, backlog=1024)
    print("ready", flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


HOLDING = """
import select, socket
listener = socket.create_server(("127.0.0.1", 8001))
print("ready", flush=True)
connection, _ = listener.accept()
print("come", flush=True)
end = select.poll()
end.register(connection, 0)
end.poll()
print("gone", flush=True)
"""
"""A service that takes nothing, but sees that a connection is broken off."""

MUCH = 8 << 20
"""More bytes than fit between a client and such a service."""


@contextlib.asynccontextmanager
async def serving(forwards: list[PortForward]) -> AsyncIterator[Sandbox]:
    """A sandbox without a network card, with a service on its own loopback that answers once it has
    been told all, and datagrams at once, with the port from which they came."""
    async with Sandbox(image="debian", network_mode="none", port_forwards=forwards) as sandbox:
        service = await sandbox.spawn(["python3", "-c", SERVER], detach=True)
        async for _ in service.output():
            break
        yield sandbox
    wait_for(lambda: not forwarders(), what="the process of its forwards to end")


@pytest.fixture
async def vm() -> AsyncIterator[Sandbox]:
    async with serving([]) as sandbox:
        yield sandbox


@pytest.fixture
async def with_port() -> AsyncIterator[Sandbox]:
    """It was started with a port that leads to the service, and one for datagrams."""
    async with serving([PortForward(0, 8000), PortForward(0, 8000, Protocol.UDP)]) as sandbox:
        yield sandbox


async def ask(port: int, text: bytes = b"hi", host: str = "127.0.0.1") -> bytes:
    """What the service answers. Raises ConnectionError."""
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, port)
        with contextlib.closing(writer):
            writer.write(text)
            writer.write_eof()
            return await reader.read()


@contextlib.contextmanager
def datagrams(port: int, host: str = "127.0.0.1") -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.setblocking(False)
        made.connect((host, port))
        yield made


async def echoed(port: int) -> bytes:
    """What a new client gets back."""
    with datagrams(port) as made:
        return (await answered(made, b"hi"))[1]


async def answered(made: socket.socket, text: bytes) -> tuple[bytes, bytes]:
    """The port in the guest from which a datagram came, and the datagram. It is sent again until
    there is an answer, as clients of UDP do."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        while True:
            await loop.sock_sendall(made, text)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2):
                    while True:
                        port, _, found = (await loop.sock_recv(made, 65536)).partition(b":")
                        if found == text:
                            return port, found


def has_ipv6() -> bool:
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


async def test_a_forward_reaches_the_guests_own_loopback_and_lasts(
    vm: Sandbox, places: Paths
) -> None:
    made = await vm.forward(8000)
    assert await ask(made.host) == b"guest:hi"
    if has_ipv6():
        assert await ask(made.host, host="::1") == b"guest:hi"
    much = os.urandom(1 << 20)
    assert await ask(made.host, much) == b"guest:" + much
    entry = Registry(places).find(vm.id)
    assert entry.ports == ((made.host, 8000),)
    assert vm.port_forwards == {8000: made.host}
    assert await vm.forward(8000, made.host) == made  # it is there already

    # Several ports are carried by one process.
    other = await vm.forward(9)
    assert len(forwarders()) == 1
    with pytest.raises(ConnectionError):
        await ask(other.host)

    with pytest.raises(StateError, match="forwarded to port 8000 already"):
        await vm.forward(80, made.host)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(PortInUseError):
        await vm.forward(8000, taken.getsockname()[1])

    # A revert ends what is under way, and not the forward.
    await vm.checkpoint("a")
    reader, writer = await asyncio.open_connection("127.0.0.1", made.host)
    writer.write(b"x")
    await vm.revert("a")
    with pytest.raises(ConnectionError):
        await asyncio.wait_for(reader.read(), 60)
    writer.close()
    assert await ask(made.host) == b"guest:hi"

    await vm.unforward(made.host)
    with pytest.raises(ConnectionRefusedError):
        await ask(made.host)
    with pytest.raises(StateError):
        await vm.unforward(made.host)
    await vm.unforward(other.host)
    wait_for(lambda: not forwarders(), what="the process to end without a forward")
    assert await say(vm, "echo alive") == "alive"


async def test_datagrams_are_forwarded_and_each_client_has_its_own_socket(
    vm: Sandbox, places: Paths
) -> None:
    async with await vm.dial_udp(8000) as dialled:
        await dialled.send(b"hello")
        assert (await dialled.receive()).endswith(b":hello")

    made = await vm.forward(8000, protocol="udp")
    both = await vm.forward(8000, made.host)  # a port of TCP is another one
    entry = Registry(places).find(vm.id)
    assert (entry.ports, entry.udp_ports) == (((both.host, 8000),), ((made.host, 8000),))
    wait_for(lambda: len(forwarders()) == 1, what="one process")
    with datagrams(made.host) as one, datagrams(made.host) as two:
        first, _ = await answered(one, b"a")
        second, _ = await answered(two, b"b")
        assert first != second
        assert (await answered(one, b"c"))[0] == first
        largest = bytes(65_500)
        assert await answered(one, largest) == (first, largest)
        if has_ipv6():
            with datagrams(made.host, "::1") as three:
                assert (await answered(three, b"d"))[1] == b"d"

        await vm.checkpoint("a")
        await vm.revert("a")
        assert (await answered(one, b"e"))[1] == b"e"

    await vm.unforward(both.host)
    with pytest.raises(StateError) as caught:
        await vm.unforward(made.host)
    assert caught.value.hint == f"{made.host}/udp is"
    await vm.unforward(made.host, protocol="udp")
    wait_for(lambda: not forwarders(), what="the process to end without a forward")


async def answers(port: int, count: int) -> list[bool]:
    """Of ``count`` connections at once, whether each got its answer; else it got a reset."""

    async def one(number: int) -> bool:
        try:
            return await ask(port, b"%d" % number) == b"guest:%d" % number
        except ConnectionError:
            return False

    return await asyncio.gather(*(one(number) for number in range(count)))


async def test_the_ports_of_a_start_lead_to_the_guests_own_loopback(
    with_port: Sandbox, places: Paths
) -> None:
    ((guest, port),) = with_port.port_forwards.items()
    assert guest == 8000
    entry = Registry(places).find(with_port.id)
    assert entry.ports == ((port, 8000),)
    ((guest, udp),) = with_port.udp_port_forwards.items()
    assert (guest, entry.udp_ports, entry.dialled) == (8000, ((udp, 8000),), ())
    assert await ask(port) == b"guest:hi"
    assert await echoed(udp) == b"hi"
    if has_ipv6():
        assert await ask(port, host="::1") == b"guest:hi"
    # One process carries those that are added, too.
    assert await with_port.forward(8000, port) == PortForward(port, 8000)
    added = await with_port.forward(8000)
    assert len(forwarders()) == 1
    assert Registry(places).find(with_port.id).ports == tuple(
        sorted(((port, 8000), (added.host, 8000)))
    )
    with pytest.raises(StateError, match="not forwarded"):
        await with_port.unforward(port)
    with pytest.raises(StateError, match="not forwarded"):
        await with_port.unforward(udp, protocol="udp")
    await with_port.unforward(added.host)
    assert await ask(port) == b"guest:hi"

    # A client that breaks off is noticed while the service takes nothing and nobody reads from it.
    held = await with_port.spawn(["python3", "-c", HOLDING])
    pieces = held.output()
    await anext(pieces)
    _, writer = await asyncio.open_connection("127.0.0.1", (await with_port.forward(8001)).host)
    writer.write(bytes(MUCH))
    assert (await anext(pieces))[1] == b"come\n"
    reset(writer)
    async with asyncio.timeout(60):
        assert (await anext(pieces))[1] == b"gone\n"

    await with_port.checkpoint("a")
    await with_port.revert("a")
    assert await ask(port) == b"guest:hi"
    assert await echoed(udp) == b"hi"

    # Who asks anything of the sandbox finds that the process was killed.
    (pid,) = forwarders()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not forwarders(), what="its end")
    wait_for(lambda: not listens(port), what="its ports to be free")
    assert await say(with_port, "echo alive") == "alive"
    assert await ask(port) == b"guest:hi"
    assert await echoed(udp) == b"hi"
    assert len(forwarders()) == 1


async def test_more_connections_than_the_agent_has_channels_are_answered(
    with_port: Sandbox,
) -> None:
    (port,) = with_port.port_forwards.values()
    assert all(await answers(port, AT_ONCE))
    assert await ask(port) == b"guest:hi"


@pytest.mark.soak
async def test_each_of_1000_connections_at_once_is_answered_or_reset(with_port: Sandbox) -> None:
    (port,) = with_port.port_forwards.values()
    assert len(await answers(port, MOST)) == MOST
    assert await ask(port) == b"guest:hi"


async def test_ports_are_free_when_the_sandbox_has_ended_and_are_there_again(places: Paths) -> None:
    """With a stop, and without one."""
    port = free_port()
    sandbox = Sandbox(image="debian", port_forwards=[PortForward(port, 8000)])
    await sandbox.start()
    assert listens(port)
    await sandbox.stop(grace=0)
    assert not listens(port)
    if has_ipv6():
        with (
            socket.create_server(("::1", port), family=socket.AF_INET6),
            pytest.raises(PortInUseError, match=rf"host port {port} .*\[::1\]:{port}"),
        ):
            await sandbox.start()
    await sandbox.start()
    assert sandbox.port_forwards == {8000: port}
    assert listens(port)
    run = Registry(places).find(sandbox.id).run
    assert run is not None
    os.kill(run.qemu_pid, signal.SIGKILL)
    lock = sandbox_dir(places, sandbox.id).lock
    wait_for(lambda: not is_locked(lock), what="the end of the sandbox")
    assert not listens(port)
    await sandbox.trash()


OWNER = """
import asyncio, os
from quicksand import PortForward, Sandbox

async def main():
    sandbox = Sandbox(image="debian", port_forwards=[PortForward(0, 8000)])
    await sandbox.start()
    print(*sandbox.port_forwards.values(), flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_ports_end_with_a_script_that_is_killed(places: Paths) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        port = int(await asyncio.to_thread(owner.stdout.readline))
        assert listens(port)
        owner.kill()
    wait_for(lambda: not listens(port), what="its port to be free")
    wait_for(lambda: not forwarders(), what="the process of its ports to end")
    wait_for(lambda: not list(places.runtime.glob("*")), what="the end of the sandbox")


async def test_a_forwarder_that_was_killed_leaves_nothing_in_the_way(
    vm: Sandbox, places: Paths
) -> None:
    made = await vm.forward(8000)
    (pid,) = forwarders()
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not forwarders(), what="its end")
    # A dying process has no command line any more, and its lock a little longer.
    wait_for(lambda: Registry(places).find(vm.id).ports == (), what="its lock to be free")
    again = await vm.forward(8000, made.host)
    assert again == made
    assert await ask(made.host) == b"guest:hi"


async def test_several_that_begin_at_once_share_one_process(vm: Sandbox) -> None:
    made = await asyncio.gather(*(vm.forward(8000) for _ in range(5)))
    assert len({one.host for one in made}) == 5
    wait_for(lambda: len(forwarders()) == 1, what="one process")
    assert await asyncio.gather(*(ask(one.host) for one in made)) == [b"guest:hi"] * 5
