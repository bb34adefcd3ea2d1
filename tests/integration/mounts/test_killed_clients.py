"""Clients that are killed while they mount, unmount and revert leave nothing that is in the way of
the next one."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import sys
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths

from tests.conftest import PATIENCE_S, Patience, our_processes
from tests.integration.guests import say

pytestmark = pytest.mark.vm

SOON_S = 15.0
"""A mount takes a fifth of a second. A kernel gives up a server that does not answer after 21."""

CLIENT = """
import asyncio, sys
from quicksand import Sandbox
async def main():
    vm = Sandbox.attach("box")
    print("ready", flush=True)
    while True:
        handle = await vm.mount(sys.argv[1], "/mnt/data")
        await vm.unmount(handle)
asyncio.run(main())
"""

IN_THE_MIDST = """
import asyncio, os, signal, sys
from pathlib import Path
from quicksand import Sandbox
from quicksand.mounts import mounting

start_server = mounting.start_server
async def start(*args, **kwargs):
    share = await start_server(*args, **kwargs)
    server = Path(f"/proc/{share.pid}/task/{share.pid}/children").read_text().split()[0]
    os.kill(int(server), signal.SIGSTOP)
    return share
mounting.start_server = start

async def main():
    vm = Sandbox.attach("box")
    mounting_it = asyncio.create_task(vm.mount(sys.argv[1], "/mnt/data"))
    while (await vm.execute("grep -q ':01BD 01 ' /proc/net/tcp")).exit_code:
        await asyncio.sleep(0.02)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
"""Ends when the guest's kernel waits for the answer of a server, which has been stopped."""

REVERTING = """
import asyncio
from quicksand import Sandbox
async def main():
    vm = Sandbox.attach("box")
    print("ready", flush=True)
    while True:
        await vm.revert("one", keep_now=False)
asyncio.run(main())
"""


def servers(places: Paths) -> int:
    return sum("quicksand_smb" in line for line in our_processes(str(places.runtime)))


async def killed(program: str, *words: str, after: float) -> None:
    """Run a client and kill it ``after`` so many seconds."""
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *words, stdout=asyncio.subprocess.PIPE
    )
    assert client.stdout is not None
    assert await client.stdout.readline() == b"ready\n"
    with contextlib.suppress(TimeoutError):
        # It ends only if something has gone wrong, which is seen below.
        await asyncio.wait_for(client.wait(), after)
    client.send_signal(signal.SIGKILL)
    await client.wait()


async def unmount_all(vm: Sandbox) -> None:
    for handle in vm.active_mounts:
        await vm.unmount(handle)


async def settle(vm: Sandbox, places: Paths, at: Path, *, left: int) -> None:
    """Mount and unmount until ``left`` processes serve. A busy guest takes its time to leave what
    was taken from it, which is refused until a mount or unmount finds that it has."""
    patience = Patience(PATIENCE_S)
    while servers(places) != left:
        assert not patience.is_over(), f"{servers(places)} servers and supervisors are left"
        await vm.unmount(await vm.mount(at, "/mnt/other"))


@pytest.mark.parametrize("rounds", [5, pytest.param(60, marks=pytest.mark.soak)])
async def test_who_is_killed_while_mounting_leaves_nothing_in_the_way(
    places: Paths, tmp_path: Path, rounds: int
) -> None:
    (tmp_path / "here").write_text("yes")
    draw = random.Random(7)
    async with Sandbox(image="debian", name="box", ephemeral=True) as vm:
        for _ in range(rounds):
            await killed(CLIENT, str(tmp_path), after=draw.uniform(0, 0.4))
            await unmount_all(vm)
            handle = await vm.mount(tmp_path, "/mnt/data")
            assert await say(vm, "cat /mnt/data/here") == "yes"
            await vm.unmount(handle)
            assert await say(vm, "ls /mnt/data; grep -c cifs /proc/mounts || true") == "0"
        await settle(vm, places, tmp_path, left=0)


async def test_who_is_killed_while_the_guest_waits_for_a_server_holds_nobody_up(
    places: Paths, tmp_path: Path
) -> None:
    (tmp_path / "here").write_text("yes")
    async with Sandbox(image="debian", name="box", ephemeral=True) as vm:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", IN_THE_MIDST, str(tmp_path)
        )
        assert await client.wait() == -signal.SIGKILL
        assert len(vm.active_mounts) == 1
        async with asyncio.timeout(SOON_S):
            await unmount_all(vm)
            handle = await vm.mount(tmp_path, "/mnt/data")
        assert await say(vm, "cat /mnt/data/here") == "yes"
        await vm.unmount(handle)
        assert await say(vm, "ls /mnt/data; grep -c cifs /proc/mounts || true") == "0"
        await settle(vm, places, tmp_path, left=0)


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.soak)])
async def test_who_is_killed_while_reverting_leaves_a_sandbox_that_mounts(
    places: Paths, tmp_path: Path, rounds: int
) -> None:
    (tmp_path / "here").write_text("yes")
    draw = random.Random(8)
    async with Sandbox(image="debian", name="box", ephemeral=True) as vm:
        await vm.mount(tmp_path, "/mnt/data")
        await vm.checkpoint("one")
        for _ in range(rounds):
            await killed(REVERTING, after=draw.uniform(0, 1.5))
            await vm.revert("one", keep_now=False)
            await unmount_all(vm)
            await vm.mount(tmp_path, "/mnt/data")
            assert await say(vm, "cat /mnt/data/here; echo x >> /mnt/data/log") == "yes"
            assert len(vm.active_mounts) == 1
        await settle(vm, places, tmp_path, left=2)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == rounds, "each was written once"
