"""Checkpoints, reverts and clones of a sandbox at the same time, of one that is busy, and many."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.snapshots.history import History

from tests.integration.guests import say
from tests.integration.small_disks import MIB
from tests.integration.snapshots.files import check_files

pytestmark = pytest.mark.vm

BUSY_MIB = 96

BUSY = f"""
block = bytearray({BUSY_MIB} << 20)
view, number = memoryview(block), 0
print("writing", flush=True)
while True:
    number = (number + 1) % 251
    page = bytes([number]) * 65536
    for at in range(0, len(block), 65536):
        view[at : at + 65536] = page
"""

COPIED_PER_S = 100 * MIB
"""At the least, on a host that does other things too."""

MANY = 300
LOOKED_AT = (3, 30, 100, 300)


async def test_a_checkpoint_and_a_revert_at_once_take_turns(vm: Sandbox, places: Paths) -> None:
    other = Sandbox.attach("box")
    await say(vm, "echo base | tee /dev/shm/f > /root/f")
    await vm.checkpoint("base")
    for turn in range(3):
        await say(vm, f"echo {turn} | tee /dev/shm/f > /root/f")
        both = await asyncio.gather(
            vm.checkpoint(f"at {turn}"), other.revert("base"), return_exceptions=True
        )
        assert not [e for e in both if isinstance(e, BaseException)], both
        assert await say(vm, "cat /dev/shm/f /root/f") == "base\nbase"
        await vm.revert(f"at {turn}", keep_now=False)
        found = set((await say(vm, "cat /dev/shm/f /root/f")).split())
        assert found in ({"base"}, {str(turn)}), "memory and disk are of different instants"
    other.close()
    history = History(sandbox_dir(places, vm.id))
    assert not history.broken()
    for node in history.all_nodes():
        check_files(history.place, node)


@pytest.mark.soak
async def test_a_guest_that_writes_memory_as_fast_as_it_can_is_cloned(
    vm: Sandbox, places: Paths
) -> None:
    """The pause is that of copying what the guest has written, no more."""
    await vm.files.write("/root/busy.py", BUSY.encode())
    begun = "until grep -q writing /dev/shm/log; do sleep 0.05; done"
    await say(vm, f"python3 /root/busy.py > /dev/shm/log 2>&1 < /dev/null & {begun}")
    await vm.checkpoint("busy")
    async with asyncio.timeout(60):
        clones = await vm.clone(1)
    try:
        assert await say(clones[0], "pgrep -c python3") == "1"
    finally:
        await clones[0].kill()
    history = History(sandbox_dir(places, vm.id))
    nodes = history.all_nodes()
    assert [node.hidden for node in nodes] == [False, True]
    for node in nodes:
        assert node.pause_s < 0.5 + vm.config.memory_bytes / COPIED_PER_S
        check_files(history.place, node)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_three_hundred_checkpoints(vm: Sandbox, places: Paths) -> None:
    """Prints what they cost."""
    for number in range(1, MANY + 1):
        await say(vm, f"echo {number} | tee /dev/shm/f > /root/f")
        started = time.perf_counter()
        made = await vm.checkpoint(str(number))
        seconds = time.perf_counter() - started
        if number in LOOKED_AT:
            print(f"\n{number}: {seconds:.2f} s, pause {made.pause_s * 1000:.0f} ms", end="")
            await look(vm, places, number)


async def look(vm: Sandbox, places: Paths, number: int) -> None:
    """Cost of a revert and of a start at the latest checkpoint, and what it needs."""
    run = Sandbox.list()[0].run
    assert run is not None
    print(f", QEMU has {len(os.listdir(f'/proc/{run.qemu_pid}/fd'))} files open", end="")
    started = time.perf_counter()
    await vm.revert(str(number), keep_now=False)
    print(f", revert {time.perf_counter() - started:.2f} s", end="")
    assert await say(vm, "cat /dev/shm/f /root/f") == f"{number}\n{number}"
    await vm.kill()
    started = time.perf_counter()
    await vm.start(at=str(number))
    print(f", start at it {time.perf_counter() - started:.2f} s", end="")
    assert await say(vm, "cat /dev/shm/f /root/f") == f"{number}\n{number}"
    root = sandbox_dir(places, vm.id).root
    size = sum(p.stat().st_blocks * 512 for p in Path(root).rglob("*") if p.is_file())
    print(f", {size // MIB} MiB on the disk", flush=True)
