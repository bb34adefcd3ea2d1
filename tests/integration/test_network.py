"""What a guest reaches, and what of ours can be reached (scoreboard S7, S8)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Self

import pytest
from quicksand import NetworkMode, PortForward, Sandbox
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, processes_of
from quicksand.qemu.disconnecting import end_forwarded
from quicksand.records.layout import runtime_dir, sandbox_dir

from tests.conftest import everything_below, wait_for
from tests.integration.guests import forwarders

pytestmark = pytest.mark.vm

LOOPBACK_6 = "0" * 24 + "01000000"
"""::1, as /proc/net shows it on processors with the lowest byte first."""

PROBES = """
import socket, sys

def tcp(address, port, patience=2):
    try:
        socket.create_connection((address, port), timeout=patience).close()
        return "open"
    except OSError:
        return "no way"

def dns():
    query = bytes.fromhex("123401000001000000000000076578616d706c6503636f6d0000010001")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.settimeout(2)
        try:
            probe.sendto(query, ("10.0.2.3", 53))
            return "answer" if probe.recv(512)[:2] == query[:2] else "junk"
        except OSError:
            return "no way"

port, own, patience = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
print("loopback", tcp("10.0.2.2", port, patience))
print("host", tcp(own, port, patience))
print("metadata", tcp("169.254.169.254", 80))
print("ipv6", tcp("2001:4860:4860::8888", 53))
print("dns", dns())
"""


async def probes(sandbox: Sandbox, port: int, *, patience: float = 2) -> dict[str, str]:
    """What it reaches; ``port`` is one of this host's, for which it waits so many seconds."""
    argv = ["python3", "-c", PROBES, str(port), own_address(), str(patience)]
    result = await sandbox.execute(argv, timeout=120)
    assert result.exit_code == 0, result.stderr
    found = dict(line.split(" ", 1) for line in result.stdout.splitlines())
    links = await sandbox.execute("ls /sys/class/net")
    return found | {"card": "yes" if "eth0" in links.stdout.split() else "no"}


def own_address() -> str:
    """An address of this host that is not its loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        return str(probe.getsockname()[0])


class Service:
    """Something on this host that a guest may reach, or not."""

    def __init__(self) -> None:
        self.connections = 0

    async def __aenter__(self) -> Self:
        self.server = await asyncio.start_server(self._take, "0.0.0.0", 0)
        self.port = int(self.server.sockets[0].getsockname()[1])
        return self

    def _take(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.close()

    async def __aexit__(self, *_: object) -> None:
        self.server.close()


@pytest.mark.parametrize(
    ("mode", "card"), [(NetworkMode.NONE, "no"), (NetworkMode.MOUNTS_ONLY, "yes")]
)
async def test_without_the_full_network_nothing_is_reached(
    places: Paths, warm_without_network: None, mode: NetworkMode, card: str
) -> None:
    async with Service() as here, Sandbox(image="debian", network_mode=mode) as sandbox:
        found = await probes(sandbox, here.port)
        assert found.pop("card") == card
        assert found == dict.fromkeys(("loopback", "host", "metadata", "ipv6", "dns"), "no way")
        assert here.connections == 0


async def test_the_full_network_has_this_host_and_no_other_sandbox(places: Paths) -> None:
    """Each has a network of its own: the same address is another guest."""
    serve = "import socket; s = socket.create_server(('', 7000)); s.accept()"
    probe = "timeout 3 bash -c 'exec 3<>/dev/tcp/10.0.2.15/7000' && echo reached"
    first = Sandbox(image="debian", network_mode=NetworkMode.FULL)
    second = Sandbox(image="debian", network_mode=NetworkMode.FULL)
    async with Service() as here, first, second, await first.spawn(["python3", "-c", serve]):
        found = await probes(second, here.port, patience=30)
        assert (found["loopback"], found["host"], found["card"]) == ("open", "open", "yes")
        assert found["ipv6"] == "no way"
        assert here.connections == 2
        assert "reached" not in (await second.execute(probe, shell="/bin/bash")).stdout


def listening(place: Path) -> set[tuple[str, str]]:
    """(protocol, address) of all that listens on TCP or has a UDP port, by /proc/net: of this
    process, of the sandbox in ``place``, and of those that carry ports. Other tests may run beside
    this one."""
    pids = [os.getpid(), *(found.pid for found in processes_of(place)), *forwarders()]
    found, ours = set(), sockets_of(*pids)
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/net/{protocol}").read_text().splitlines()[1:]:
            fields = line.split()
            is_open = fields[3] == "0A" or protocol.startswith("udp")
            if is_open and f"socket:[{fields[9]}]" in ours:
                found.add((protocol, fields[1]))
    return found


def sockets_of(*pids: int) -> set[str]:
    found = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # closed, ended meanwhile
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    found.add(os.readlink(link))
    return found


async def test_nothing_of_ours_listens_but_the_ports_that_were_asked_for(places: Paths) -> None:
    before = listening(places.data)
    async with Sandbox(image="debian") as sandbox:
        place = sandbox_dir(places, sandbox.id).root
        assert len(processes_of(place)) == 2, "QEMU and its keeper"
        assert listening(place) - before == set()
        runtime = runtime_dir(places, sandbox.id).root
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        modes = {
            stat.S_IMODE(path.stat().st_mode)
            for path in everything_below(runtime)
            if path.suffix == ".sock"
        }
        assert modes == {0o600}
    async with Sandbox(image="debian", port_forwards=[PortForward(0, 80)]) as sandbox:
        port, place = sandbox.port_forwards[80], sandbox_dir(places, sandbox.id).root
        shown = {("tcp", f"0100007F:{port:04X}"), ("tcp6", f"{LOOPBACK_6}:{port:04X}")}
        # The sockets are nobody's while they are on their way to the process that carries the port.
        await asyncio.to_thread(
            wait_for, lambda: listening(place) - before == shown, what=f"{shown} alone"
        )
    await asyncio.to_thread(wait_for, lambda: not processes_of(place), what="its processes to end")
    assert listening(place) - before == set()


ECHO = """
import socket, sys, threading

def serve(connection):
    with connection:
        while data := connection.recv(4096):
            connection.sendall(data)

def dial(port):
    serve(socket.create_connection(("10.0.2.2", port)))

threading.Thread(target=dial, args=(int(sys.argv[1]),)).start()
listener = socket.create_server(("", 8080))
print("up", flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    writer.write(b"x")
    return await asyncio.wait_for(reader.read(1), 60)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux can do that")
async def test_connections_through_qemu_are_ended_from_outside(places: Paths) -> None:
    sandbox = Sandbox(
        image="debian", network_mode=NetworkMode.FULL, port_forwards=[PortForward(0, 8080)]
    )
    outwards: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    peer = await asyncio.start_server(lambda *pair: outwards.put(pair), "127.0.0.1", 0)
    async with peer, sandbox:
        await sandbox.files.write("/root/echo.py", ECHO)
        own = str(peer.sockets[0].getsockname()[1])
        async with await sandbox.spawn(["python3", "/root/echo.py", own]) as command:
            async for _, data in command.output():
                if b"up" in data:
                    break
            port = sandbox.port_forwards[8080]
            pairs = [await asyncio.wait_for(outwards.get(), 60)]
            pairs += [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
            assert [await echo(*pair) for pair in pairs] == [b"x"] * 3
            (pid,) = [
                found.pid
                for found in processes_of(sandbox_dir(places, sandbox.id).root)
                if found.kind is ProcessKind.QEMU
            ]
            assert end_forwarded(pid, keep=[]) == 1
            assert await asyncio.wait_for(pairs[0][0].read(), 60) == b""
            # The others do not go through QEMU's network.
            assert [await echo(*pair) for pair in pairs[1:]] == [b"x"] * 2
            for _, writer in pairs:
                writer.close()
