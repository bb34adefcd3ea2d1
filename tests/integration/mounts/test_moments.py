"""Checkpoints, reverts, clones and stops of a guest that writes to its mounts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand import Mount, Sandbox
from quicksand.base.paths import Paths
from quicksand.mounts.known_mounts import known_mounts
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry
from quicksand.things.status import MountState

from tests.conftest import wait_for
from tests.integration.guests import say

pytestmark = pytest.mark.vm

AT = "/mnt/data"
SOON_S = 60.0

WRITER = """
import os
file = os.open("/mnt/data/lines", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
number = 0
while True:
    os.write(file, b"%06d\\n" % number)
    if number % 5 == 0:
        os.fsync(file)
    number += 1
"""
"""Counts. A guest that continued from its past with the mount it had would count twice."""


@pytest.fixture
async def vm(tmp_path: Path) -> AsyncIterator[Sandbox]:
    """It writes to `tmp_path` all the time."""
    async with Sandbox(image="debian", mounts=[Mount(str(tmp_path), AT)]) as found:
        await found.files.write("/root/writer.py", WRITER)
        await found.spawn("exec python3 /root/writer.py", detach=True)
        wait_for(lambda: len(lines(tmp_path)) > 20, what="lines", timeout=SOON_S)
        yield found


def lines(host: Path) -> list[str]:
    try:
        return (host / "lines").read_text().split()
    except FileNotFoundError:
        return []


async def writes_on(host: Path) -> None:
    count = len(lines(host))
    await asyncio.to_thread(
        wait_for, lambda: len(lines(host)) > count + 20, what="more lines", timeout=SOON_S
    )


async def test_a_mount_is_told_mounted_only_when_it_is(places: Paths, tmp_path: Path) -> None:
    async with Sandbox(image="debian", name="slow") as vm:
        registry = Registry(places)

        def told() -> list[MountState]:
            return [known.state for known in known_mounts(registry, registry.find("slow"))]

        monitor = await Monitor.connect(runtime_dir(places, vm.id).current())
        try:
            await monitor.execute("stop")  # a guest that is very slow
            mounting = asyncio.create_task(vm.mount(tmp_path, AT))
            await asyncio.to_thread(wait_for, lambda: told() != [], what="a word of it")
            assert told() == [MountState.MOUNTING]
            assert vm.active_mounts == []
            await monitor.execute("cont")
        finally:
            await monitor.close()
        await mounting
        assert told() == [MountState.MOUNTED]
        assert [one.guest for one in vm.active_mounts] == [AT]


async def test_a_revert_writes_nothing_twice_and_a_stop_loses_nothing(
    vm: Sandbox, tmp_path: Path
) -> None:
    await vm.checkpoint("one")
    await writes_on(tmp_path)
    for number in range(2):
        begin = time.monotonic()
        await vm.revert("one")
        await say(vm, f"echo {number} > {AT}/after && sync {AT}/after && ls {AT}")
        assert time.monotonic() - begin < SOON_S
        assert (tmp_path / "after").read_text() == f"{number}\n"
    found = lines(tmp_path)
    assert len(found) == len(set(found))
    assert [one.guest for one in vm.active_mounts] == [AT]
    await say(vm, f"head -c 5000000 /dev/zero > {AT}/unsynced")
    begin = time.monotonic()
    await vm.stop()
    assert time.monotonic() - begin < SOON_S
    assert (tmp_path / "unsynced").stat().st_size == 5_000_000


async def test_checkpoints_and_clones_disturb_no_writer_and_clones_have_no_mounts(
    vm: Sandbox, tmp_path: Path
) -> None:
    for number in range(2):
        await vm.checkpoint(f"c{number}")
        await writes_on(tmp_path)
    (clone,) = await vm.clone(1)
    try:
        assert await say(clone, f"grep -c {AT} /proc/mounts || true") == "0"
        await say(clone, f"timeout 20 ls {AT}")
        assert clone.active_mounts == []
        await writes_on(tmp_path)
    finally:
        await clone.kill()
    found = lines(tmp_path)
    assert [int(line) for line in found] == list(range(len(found)))
