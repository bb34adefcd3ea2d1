"""Many clones of one sandbox (scoreboard R12): no two have anything of their own in common, and
when their maker is killed nothing of them is left."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths

from tests.conftest import left_when_reaped, our_processes, wait_for
from tests.integration.guests import is_on_time, say

pytestmark = pytest.mark.vm

OWN = (
    "head -c 16 /dev/urandom | od -An -tx1; cd /proc/sys/kernel/random; cat uuid boot_id;"
    " cat /etc/machine-id; hostname; cat /sys/class/net/eth0/address;"
    " cut -d' ' -f2 /etc/ssh/ssh_host_ed25519_key.pub 2>/dev/null || cat uuid"
)

CALLER = """
import asyncio
from quicksand import Sandbox
async def main():
    await Sandbox.attach("box").clone(16, concurrency=2, names=[None] * 16)
asyncio.run(main())
"""


def qemus(places: Paths) -> int:
    lines = our_processes(str(places.data))
    return sum("keeper.py" not in line for line in lines)


@pytest.mark.parametrize("count", [3, pytest.param(16, marks=pytest.mark.soak)])
async def test_clones_have_nothing_of_their_own_in_common(
    places: Paths, patient: None, count: int
) -> None:
    async with Sandbox(image="debian") as vm:
        first = (await say(vm, OWN)).splitlines()
        clones = await vm.clone(count, concurrency=2)
        try:
            answers = [first, *[(await say(clone, OWN)).splitlines() for clone in clones]]
            for kind in zip(*answers, strict=True):
                assert len(set(kind)) == count + 1, kind
            assert len({clone.agent_token for clone in [vm, *clones]}) == count + 1
            assert all([await is_on_time(clone) for clone in clones])
        finally:
            await asyncio.gather(*(clone.kill() for clone in clones))


async def test_nothing_is_left_of_clones_whose_maker_was_killed_half_way(places: Paths) -> None:
    async with Sandbox(image="debian", name="box", ephemeral=True) as vm:
        caller = await asyncio.create_subprocess_exec(sys.executable, "-c", CALLER)
        await asyncio.to_thread(wait_for, lambda: qemus(places) >= 5, what="clones", timeout=60)
        caller.send_signal(signal.SIGKILL)
        await caller.wait()
        await asyncio.to_thread(wait_for, lambda: qemus(places) == 1, what="their end")
        wait_for(lambda: len(our_processes(str(places.data))) == 2, what="their keepers' end")
        wait_for(lambda: left_when_reaped(places) == {vm.id}, what="nothing of them to be left")
        assert await say(vm, "echo alive") == "alive"
        await vm.checkpoint("after")
