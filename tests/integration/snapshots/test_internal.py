"""The tier "internal" on real VMs: QEMU's own snapshots, alone and mixed with the tier "pages"."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

import pytest
from quicksand import Sandbox, Status
from quicksand.base.capacity import check_space
from quicksand.base.errors import (
    AgentUnreachableError,
    DiskSpaceError,
    QemuDiedError,
)
from quicksand.base.paths import Paths
from quicksand.qemu import qemu_hypervisor, qmp
from quicksand.qemu.qmp import Monitor
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.snapshots import internal
from quicksand.snapshots.tier_choice import VARIABLE

from tests.conftest import wait_for
from tests.integration.guests import say
from tests.integration.small_disks import MIB, small_disk
from tests.integration.snapshots.files import memory_of

pytestmark = pytest.mark.vm


@pytest.fixture(autouse=True)
def internal_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "internal")


async def boot_id(vm: Sandbox) -> str:
    """ "" while it is on its way down or up."""
    try:
        return (await vm.execute("cat /proc/sys/kernel/random/boot_id")).stdout.strip()
    except AgentUnreachableError:
        return ""


async def block_nodes(vm: Sandbox, places: Paths) -> list[dict[str, Any]]:
    monitor = await Monitor.connect(runtime_dir(places, vm.id).current())
    try:
        nodes: list[dict[str, Any]] = await monitor.execute("query-named-block-nodes", flat=True)
        return nodes
    finally:
        await monitor.close()


@pytest.mark.soak
async def test_memory_processes_and_disk_are_as_they_were_in_every_cycle(
    vm: Sandbox, places: Paths
) -> None:
    await say(vm, "sleep 7777 >&- 2>&- &")
    same = await say(vm, "cat /proc/sys/kernel/random/boot_id; pgrep -x sleep")
    write = "echo {0} | tee /root/f /dev/shm/f; head -c 3M /dev/urandom > /dev/shm/r; sync"
    sums = {}
    for cycle in range(3):
        await say(vm, write.format(cycle))
        sums[cycle] = await say(vm, "sha256sum /dev/shm/r")
        made = await vm.checkpoint(str(cycle))
        assert (made.tier, made.tier_note) == (
            "internal",
            "QEMU's own snapshot: QUICKSAND_TIER is set",
        )
        assert 0 < made.pause_s < 20
        await say(vm, write.format("later"))
        await vm.revert(str(cycle), keep_now=cycle == 1)
        assert await say(vm, "cat /root/f /dev/shm/f; sha256sum /dev/shm/r") == (
            f"{cycle}\n{cycle}\n{sums[cycle]}"
        )
        assert await say(vm, "cat /proc/sys/kernel/random/boot_id; pgrep -x sleep") == same
    for jump in (0, 2, 1):
        await vm.revert(str(jump), keep_now=False)
        assert await say(vm, "cat /root/f /dev/shm/f; sha256sum /dev/shm/r") == (
            f"{jump}\n{jump}\n{sums[jump]}"
        )
    await vm.undo()
    assert await say(vm, "cat /root/f /dev/shm/f") == "later\nlater"
    # A reboot finds its firmware, and the disk.
    await say(vm, "sync")
    await vm.request("shutdown", {"mode": "reboot", "grace": 1})
    async with asyncio.timeout(60):
        while await boot_id(vm) in (same.split()[0], ""):
            pass
    assert await say(vm, "cat /root/f; ls /dev/shm") == "later"
    # Nothing of it is in the layers of the disk, and QEMU has let go of all files.
    nodes = await block_nodes(vm, places)
    assert [node for node in nodes if node["image"].get("snapshots")] == []
    assert [node for node in nodes if node["node-name"].startswith(internal.NODE)] == []


@pytest.mark.soak
async def test_both_tiers_in_one_tree_in_any_order(vm: Sandbox) -> None:
    sums = {}
    tiers = ("pages", "internal", "pages", "internal", "internal", "pages")
    for number, tier in enumerate(tiers):
        await say(vm, f"echo {number} | tee /root/f /dev/shm/f")
        await say(vm, "head -c 2M /dev/urandom > /dev/shm/r")
        sums[number] = await say(vm, "sha256sum /dev/shm/r")
        assert (await vm.checkpoint(str(number), tier=tier)).tier == tier
    for jump in (1, 0, 3, 5, 2, 4, 1, 5):
        await vm.revert(str(jump), keep_now=False)
        assert await say(vm, "cat /root/f /dev/shm/f; sha256sum /dev/shm/r") == (
            f"{jump}\n{jump}\n{sums[jump]}"
        )
        # What follows a restore builds upon it.
        if jump in (0, 1):
            other = "pages" if tiers[jump] == "internal" else "internal"
            await say(vm, "echo more > /dev/shm/more")
            await vm.checkpoint(f"over {jump}", tier=other, replace=True)
            await vm.revert(f"over {jump}", keep_now=False)
            assert await say(vm, "cat /dev/shm/f /dev/shm/more") == f"{jump}\nmore"
    parents = {made.tag: made.parent for made in vm.checkpoints()}
    ids = {made.tag: made.id for made in vm.checkpoints()}
    assert [parents[str(n)] for n in range(1, 6)] == [ids[str(n)] for n in range(5)]


@pytest.mark.soak
async def test_a_start_and_clones_go_on_from_one_and_deleting_removes_its_memory(
    vm: Sandbox, places: Paths
) -> None:
    await say(vm, "echo 1 | tee /dev/shm/f /root/f; sleep 7777 >&- 2>&- &")
    one = await vm.checkpoint("one")
    assert memory_of(vm, places) >= {f"{one.id}.state"}
    await say(vm, "echo 2 | tee /dev/shm/f /root/f")
    check = "cat /root/f /dev/shm/f; pgrep -c -x sleep"
    (clone,) = await vm.clone(at="one")
    assert await say(clone, check) == "1\n1\n1"
    ids = [await say(each, "cat /etc/machine-id; hostname") for each in (vm, clone)]
    assert ids[0] != ids[1]
    await clone.stop()
    (clone,) = await vm.clone()
    assert await say(clone, check) == "2\n2\n1"
    await clone.stop()
    await vm.stop()
    await vm.start(at="one")
    assert await say(vm, check) == "1\n1\n1"
    two = await vm.checkpoint("two")
    assert two.parent == one.id
    assert memory_of(vm, places) == {f"{one.id}.state", f"{two.id}.state"}
    await vm.delete_checkpoint("two")
    assert memory_of(vm, places) == {f"{one.id}.state"}
    await vm.stop()
    await vm.delete_checkpoint("one")
    assert memory_of(vm, places) == set()
    await vm.start()
    assert await say(vm, "cat /root/f") == "1"


# Failing


@pytest.mark.soak
async def test_a_disk_that_fills_up_while_qemu_saves_costs_only_the_checkpoint(
    places: Paths, prepared: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(prepared, places.data.parent / "disk", 900 * MIB) as small:
        async with Sandbox(image="debian", name="box") as vm:
            await say(vm, "echo here | tee /dev/shm/f /root/f; sync")
            one = await vm.checkpoint("one")
            free = os.statvfs(small.data)
            left = free.f_bavail * free.f_frsize
            (small.data / "ballast").write_bytes(bytes(left - 100 * MIB))
            await say(vm, "head -c 60M /dev/urandom > /dev/shm/r")
            with pytest.raises(DiskSpaceError, match="free space"):
                await vm.checkpoint("two")
            with monkeypatch.context() as patch:
                patch.setattr(internal, "check_space", lambda root, need=0: check_space(root))
                with pytest.raises(DiskSpaceError, match="free space") as caught:
                    await vm.checkpoint("two")
                assert "snapshot-save" in str(caught.value.__cause__)
            assert await say(vm, "cat /dev/shm/f") == "here"
            assert [c.tag for c in vm.checkpoints()] == ["one"]
            assert memory_of(vm, small) >= {f"{one.id}.state"}
            assert len([n for n in memory_of(vm, small) if n.endswith(".state")]) == 1
            assert len(list(sandbox_dir(small, vm.id).checkpoints.iterdir())) == 1
            nodes = [node["node-name"] for node in await block_nodes(vm, small)]
            assert [name for name in nodes if name.startswith(internal.NODE)] == []
            (small.data / "ballast").unlink()
            await vm.checkpoint("two")
            await vm.revert("one", keep_now=False)
            assert await say(vm, "ls /dev/shm; cat /root/f") == "f\nhere"


@pytest.mark.soak
async def test_qemu_killed_while_it_saves_loses_no_earlier_checkpoint(
    vm: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    await say(vm, "echo kept | tee /dev/shm/f /root/f; sync")
    await vm.checkpoint("kept")
    await say(vm, "echo later | tee /dev/shm/f /root/f; sync; head -c 80M /dev/zero > /dev/shm/r")
    run = Sandbox.list()[0].run
    assert run is not None
    job = qmp.run_job

    async def kill(monitor: Monitor, command: str, **arguments: Any) -> None:
        """Begin, and kill QEMU as soon as it has written something."""
        saving = asyncio.create_task(job(monitor, command, **arguments))
        memory = sandbox_dir(places, vm.id).memory
        path = memory / f"{arguments['tag']}.state"
        while path.stat().st_size < 2 * MIB:
            await asyncio.sleep(0)
        assert not saving.done()
        os.kill(run.qemu_pid, signal.SIGKILL)
        await saving

    with monkeypatch.context() as patch:
        patch.setattr(qemu_hypervisor, "run_job", kill)
        with pytest.raises(QemuDiedError):
            await vm.checkpoint("never")
    wait_for(lambda: Sandbox.list()[0].status is Status.CRASHED, what="the crash")
    await vm.stop()
    await vm.start()
    assert await say(vm, "cat /root/f") == "later"
    await vm.stop()
    await vm.start(at="kept")
    assert await say(vm, "cat /dev/shm/f /root/f") == "kept\nkept"
    assert [c.tag for c in vm.checkpoints() if not c.auto] == ["kept"]
    await vm.checkpoint("more")
    assert len(memory_of(vm, places)) == 2


CLIENT = """
import asyncio, os, signal, sys
from quicksand import Sandbox
from quicksand.qemu.qmp import Monitor

execute = Monitor.execute
async def die(self, command, **arguments):
    if command == sys.argv[1]:
        asyncio.get_running_loop().call_later(0.02, os.kill, os.getpid(), signal.SIGKILL)
    return await execute(self, command, **arguments)
Monitor.execute = die

async def main():
    sandbox = Sandbox.attach("box")
    await (sandbox.checkpoint("never") if sys.argv[2] == "checkpoint" else sandbox.revert("one"))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("operation", "command"),
    [
        ("checkpoint", "snapshot-save"),
        pytest.param("revert", "snapshot-load", marks=pytest.mark.soak),
        pytest.param("revert", "snapshot-save", marks=pytest.mark.soak),
    ],
)
async def test_a_client_killed_during_the_job_leaves_the_sandbox_running(
    vm: Sandbox, places: Paths, operation: str, command: str
) -> None:
    await say(vm, "echo here | tee /dev/shm/f /root/f")
    one = await vm.checkpoint("one")
    await say(vm, "echo there | tee /dev/shm/f /root/f; head -c 60M /dev/zero > /dev/shm/r")
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, command, operation)
    assert await client.wait() == -signal.SIGKILL
    assert await say(vm, "cat /dev/shm/f /root/f") == "there\nthere"
    assert [c.tag for c in vm.checkpoints()] == ["one"]
    two = await vm.checkpoint("two")
    assert memory_of(vm, places) >= {f"{one.id}.state", f"{two.id}.state"}
    assert len([n for n in memory_of(vm, places) if n.endswith(".state")]) == 2
    await vm.revert("one", keep_now=False)
    assert await say(vm, "cat /dev/shm/f /root/f") == "here\nhere"
    await vm.revert("two", keep_now=False)
    assert await say(vm, "cat /dev/shm/f /root/f") == "there\nthere"
