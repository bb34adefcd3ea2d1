"""Clones of real VMs: the same at first, each by itself then, and somebody else."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest
from quicksand import PortForward, Sandbox, Status
from quicksand.base.errors import CheckpointNotFoundError, ConfigError, HistoryError, NameTakenError
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry

from tests.conftest import everything_below, left_when_reaped, our_processes, wait_for
from tests.integration.disks import file_of_stopped
from tests.integration.guests import IDENTITY, say

pytestmark = pytest.mark.vm


@pytest.fixture
async def vm(places: Paths) -> AsyncIterator[Sandbox]:
    async with Sandbox(image="debian", name="box", port_forwards=[PortForward(0, 80)]) as sandbox:
        yield sandbox


async def end(*sandboxes: Sandbox) -> None:
    for sandbox in sandboxes:
        await sandbox.kill()


def private_bytes(places: Paths, sandbox: Sandbox) -> int:
    """What a sandbox takes on the disk beside what it shares."""
    files = (
        p.stat() for p in everything_below(sandbox_dir(places, sandbox.id).root) if p.is_file()
    )
    return sum(found.st_blocks * 512 for found in files if found.st_nlink == 1)


async def test_clones_are_the_same_and_somebody_else(vm: Sandbox, places: Paths) -> None:
    await say(vm, "echo disk > /root/f; echo memory > /dev/shm/f; sleep 7777 >&- 2>&- &")
    clones = await vm.clone(2)
    everybody = [vm, *clones]
    assert [clone.name for clone in clones] == ["box-1", "box-2"]
    for clone in clones:
        assert await say(clone, "cat /root/f /dev/shm/f; pgrep -cx sleep") == "disk\nmemory\n1"
        assert private_bytes(places, clone) < 2**20
    answers = [(await say(one, IDENTITY)).splitlines() for one in everybody]
    assert [answer[3] for answer in answers] == ["box", "box-1", "box-2"]
    for line in zip(*answers, strict=True):
        assert len(set(line)) == len(line)
    assert len({one.agent_token for one in everybody}) == 3
    assert len({one.port_forwards[80] for one in everybody}) == 3
    assert vm.checkpoints() == []
    await end(*clones)


async def test_they_diverge_and_outlive_their_source(vm: Sandbox, places: Paths) -> None:
    await say(vm, "echo same > /root/f")
    await vm.checkpoint("here")
    await say(vm, "echo later > /root/f")
    (old,) = await vm.clone(at="here")
    (new,) = await vm.clone(names=["newest"])
    assert await say(old, "cat /root/f; hostname") == "same\nbox-1"
    assert await say(new, "cat /root/f; hostname") == "later\nnewest"
    await say(new, "echo new > /root/f")
    assert await say(vm, "cat /root/f; hostname") == "later\nbox"
    await vm.kill()
    Registry(places).remove(vm.id)
    assert await say(old, "cat /root/f") == "same"
    # A clone has checkpoints of its own, the instant that it came from among them.
    assert [c.tag for c in old.checkpoints()] == ["here"]
    await say(old, "echo on > /root/f")
    await old.checkpoint("own")
    await old.revert("here")
    assert await say(old, "cat /root/f; hostname") == "same\nbox-1"
    await old.stop()
    await old.start(at="own")
    assert await say(old, "cat /root/f; hostname") == "on\nbox-1"
    await end(old, new)


async def test_a_stopped_sandbox_that_is_cloned_keeps_its_disk(vm: Sandbox, places: Paths) -> None:
    """What the clone is then: tests/e2e/commands/test_clones.py."""
    await say(vm, "echo kept > /root/f")
    await vm.stop()
    (clone,) = await vm.clone()
    await end(clone)
    assert file_of_stopped(places, vm, "/root/f") == b"kept\n"


async def test_clones_are_made_all_or_not_at_all(vm: Sandbox) -> None:
    with pytest.raises(NameTakenError, match="box"):
        await vm.clone(2, names=["free", "box"])
    with pytest.raises(CheckpointNotFoundError):
        await vm.clone(at="nowhere")
    with pytest.raises(ConfigError):
        await vm.clone(0)
    with pytest.raises(ConfigError):
        await vm.clone(2, names=["one"])
    assert [entry.name for entry in Sandbox.list()] == ["box"]


async def test_a_damaged_checkpoint_has_no_clones(vm: Sandbox, places: Paths) -> None:
    made = await vm.checkpoint("bad")
    devices = sandbox_dir(places, vm.id).checkpoints / made.id / "devices"
    devices.write_bytes(devices.read_bytes()[:-1])
    with pytest.raises(HistoryError, match="devices"):
        await vm.clone(at="bad")
    results = await vm.fork(2, at="bad")
    assert [type(result) for result in results] == [HistoryError, HistoryError]
    assert [entry.name for entry in Sandbox.list()] == ["box"]
    assert await say(vm, "echo goes on") == "goes on"


async def test_a_cancelled_clone_leaves_nothing(vm: Sandbox, places: Paths) -> None:
    task = asyncio.create_task(vm.clone(4, concurrency=2))
    while len(Sandbox.list()) < 2:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [entry.name for entry in Sandbox.list()] == ["box"]
    wait_for(lambda: len(our_processes(str(places.data))) == 2, what="the clones to be gone")
    assert await say(vm, "echo goes on") == "goes on"


MAKER = """
import asyncio, sys
from quicksand import Sandbox
async def main():
    sandbox = Sandbox.attach("box")
    print("go", flush=True)
    await sandbox.clone(6, concurrency=2)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_clones_die_with_who_made_them(vm: Sandbox, places: Paths) -> None:
    maker = subprocess.Popen([sys.executable, "-c", MAKER], stdout=subprocess.PIPE)
    assert maker.stdout is not None
    maker.stdout.readline()
    while sum(e.status is Status.RUNNING for e in Sandbox.list()) < 3:
        await asyncio.sleep(0.01)
    maker.send_signal(signal.SIGKILL)
    maker.wait()
    maker.stdout.close()
    wait_for(lambda: len(our_processes(str(places.data))) == 2, what="the clones to end")

    def whole_or_gone() -> bool:
        left_when_reaped(places)
        return {e.name for e in Sandbox.list() if e.status is not Status.STOPPED} == {"box"}

    wait_for(whole_or_gone, what="the clones to be stopped, or gone")
    assert await say(vm, "echo goes on") == "goes on"
