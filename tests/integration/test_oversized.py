"""A guest that makes QEMU grow is paused with the reason, and nothing is lost."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from quicksand import EventKind, Sandbox, Status
from quicksand.base.paths import Paths
from quicksand.qemu.host_usage import host_usage
from quicksand.records.sandboxes import Entry

from tests.conftest import wait_for
from tests.integration.guests import watch

pytestmark = pytest.mark.vm

MIB = 1024 * 1024

CONNECTIONS = """
import socket, sys
for number in range(int(sys.argv[1])):
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        connection.bind(("", 1024 + int(sys.argv[2]) + number // 16))
        connection.connect(("10.0.2.100", 445 + number % 16))
"""
"""QEMU's network keeps each connection to the address of mounts, with its buffers. It answers no
second one from the same port, so each is from another: the first is an argument."""
CONNECT = ["python3", "-c", CONNECTIONS]


def the_only_one() -> Entry:
    (entry,) = Sandbox.list()
    return entry


async def until_paused() -> str:
    def look() -> bool:
        assert the_only_one().status in (Status.RUNNING, Status.PAUSED)
        return the_only_one().status is Status.PAUSED

    await asyncio.to_thread(wait_for, look, timeout=120, what="the pause")
    return the_only_one().error


async def narrow(vm: Sandbox) -> None:
    """Have the kernel give QEMU little more than it has, so that the bound is near; a guest that
    goes on is looked at."""
    run = the_only_one().run
    assert run is not None
    limit = (_address_space(run.qemu_pid) + 300 * MIB) * 4 // 3
    resource.prlimit(run.qemu_pid, resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    await vm.pause()
    await vm.resume()


async def test_a_guest_that_makes_qemu_grow_is_paused_and_loses_nothing(places: Paths) -> None:
    async with Sandbox(image="debian", memory="192M", name="grows") as vm:
        seen: list[EventKind] = []
        watching = asyncio.create_task(watch(vm, seen))
        await vm.execute("echo kept > /dev/shm/it")
        await narrow(vm)
        async with await vm.spawn([*CONNECT, "900000", "0"]):
            why = await until_paused()
            assert "of the host's memory" in why
            usage = host_usage(the_only_one())
            assert usage.memory_bound is not None
            assert usage.memory < usage.memory_bound + 100 * MIB
            assert usage.oversized == why
            # The mark is there before QEMU is told to stop.
            await asyncio.to_thread(wait_for, lambda: EventKind.OVERSIZED in seen, what="the event")
            # A checkpoint leaves it paused, and holds nothing of what QEMU has too much.
            await vm.checkpoint("now")
            assert the_only_one().status is Status.PAUSED
            await vm.revert("now")
        assert the_only_one().status is Status.RUNNING
        run = the_only_one().run
        assert run is not None
        await vm.execute("pkill -9 python3; true")
        assert (await vm.execute("cat /dev/shm/it")).stdout == "kept\n"
        assert host_usage(the_only_one()).oversized == ""
        assert _address_space(run.qemu_pid) < 2048 * MIB
        watching.cancel()


def _address_space(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("it has ended")


async def test_a_paused_one_goes_on_and_stops_as_any_other(places: Paths) -> None:
    async with Sandbox(image="debian", memory="192M", name="grows") as vm:
        await narrow(vm)
        async with await vm.spawn([*CONNECT, "900000", "0"]):
            await until_paused()
            await vm.resume()
            await vm.execute("pkill -9 python3; true", timeout=60)
        assert the_only_one().status is Status.RUNNING
        assert (await vm.execute("echo alive")).stdout == "alive\n"
