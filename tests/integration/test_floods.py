"""What a guest's root can have its QEMU take of the host besides memory: descriptors, threads,
buffers. Each attack leaves a sandbox that still answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand import NetworkMode, Sandbox
from quicksand.base.paths import Paths
from quicksand.qemu.host_usage import host_usage
from quicksand.qemu.keeper_parts.bounds import FILES, THREADS

from tests.integration.guests import say
from tests.integration.test_network import Service

pytestmark = pytest.mark.vm

MIB = 1024 * 1024

CONNECTIONS = """
import socket, sys
kept, refused = [], 0
for number in range(5000):
    one = socket.socket()
    one.settimeout(3)
    try:
        one.connect(("10.0.2.2", int(sys.argv[1])))
        kept.append(one)
    except OSError:
        refused += 1
        if refused == 20:
            break
print(len(kept))
"""

DATAGRAMS = """
import socket
for number in range(5000):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("", 10000 + number))
        one.sendto(b"x", ("10.0.2.2", 9))
print("sent")
"""

SEND = """
import errno, select, socket, struct

def send(raw, packet):
    while True:
        try:
            return raw.sendto(packet, ("10.0.2.2", 0))
        except OSError as error:
            if error.errno != errno.ENOBUFS:  # the card's queue is full
                raise
            select.select([], [raw], [], 0.01)
"""

FRAGMENTS = f"""{SEND}
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
ends = socket.inet_aton("10.0.2.15"), socket.inet_aton("10.0.2.2")
for number in range(5000):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28, number, 0x2000, 64, 17, 0, *ends)
    send(raw, head + b"x" * 8)
print("sent")
"""

PINGS = f"""{SEND}
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
for number in range(5000):
    send(raw, b"\\x08\\x00" + (0xf7ff - number).to_bytes(2, "big") + number.to_bytes(2, "big")
         + b"\\0\\0")
print("sent")
"""

SERIAL = """
import os, time
data, sent, end = bytes(65536), 0, time.monotonic() + 3
ports = []
for number in range(1, 25):
    try:
        ports.append(os.open(f"/dev/vport{number // 100}p{number}", os.O_WRONLY | os.O_NONBLOCK))
    except OSError:
        pass
while time.monotonic() < end:
    for port in ports:
        try:
            sent += os.write(port, data)
        except OSError:
            pass
print("sent")
"""


@pytest.fixture
async def vm(places: Paths) -> AsyncIterator[Sandbox]:
    async with Sandbox(image="debian", memory="192M", network_mode=NetworkMode.FULL) as sandbox:
        yield sandbox


def qemu() -> int:
    run = Sandbox.list()[0].run
    assert run is not None
    return run.qemu_pid


def count(what: str) -> int:
    return len(list(Path(f"/proc/{qemu()}/{what}").iterdir()))


async def stands(vm: Sandbox) -> None:
    """QEMU is within all its bounds, and the sandbox does what it is told."""
    assert count("fd") <= FILES
    assert count("task") <= THREADS + vm.config.cpus
    assert host_usage(Sandbox.list()[0]).oversized == ""
    assert await say(vm, "echo alive") == "alive"


RUN = 'ulimit -n 6000; exec python3 -c "$0" "$@"'
FLOODS = {"udp": DATAGRAMS, "fragments": FRAGMENTS, "icmp": PINGS, "serial": SERIAL}


async def test_what_a_flood_costs_the_host_is_bounded(vm: Sandbox) -> None:
    async with Service() as here:
        made = int(await say_slowly(vm, CONNECTIONS, str(here.port)))
    assert 0 < made < FILES, "a connection is a descriptor of QEMU's"
    await stands(vm)
    for name, attack in FLOODS.items():
        before = host_usage(Sandbox.list()[0]).memory
        await say_slowly(vm, attack)
        # What the guest has written of its own memory by then counts, too.
        grown = host_usage(Sandbox.list()[0]).memory - before
        assert grown < (192 + 128 + 64) * MIB, f"{name}: {grown}"
        await stands(vm)


async def say_slowly(vm: Sandbox, program: str, *arguments: str) -> str:
    async with asyncio.timeout(240):
        result = await vm.execute(["sh", "-c", RUN, program, *arguments], timeout=230)
    assert result.exit_code == 0, result.stderr
    return result.stdout.strip()
