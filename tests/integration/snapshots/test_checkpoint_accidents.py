"""Checkpoints of real VMs when a file is damaged, a client or QEMU dies, the disk is full."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest
from quicksand import Sandbox, Status
from quicksand.base.errors import DiskSpaceError, HistoryError, StateError
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.snapshots.history import History

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import our_processes, wait_for
from tests.integration.disks import file_of_stopped
from tests.integration.guests import say
from tests.integration.small_disks import MIB, small_disk
from tests.integration.snapshots.files import flip_bit

pytestmark = pytest.mark.vm


async def test_a_start_at_a_damaged_checkpoint_leaves_the_disk_as_it_was(
    vm: Sandbox, places: Paths
) -> None:
    await vm.checkpoint("one")
    await say(vm, "echo later > /root/f")
    await vm.stop()
    place = sandbox_dir(places, vm.id)
    devices = place.checkpoints / History(place).find("one").id / "devices"
    devices.write_bytes(devices.read_bytes()[:-1])
    with pytest.raises(HistoryError, match="devices"):
        await vm.start(at="one")
    wait_for(lambda: not our_processes(str(places.data)), what="its processes to end")
    History(place).sweep()
    assert file_of_stopped(places, vm, "/root/f") == b"later\n"


async def test_without_its_head_a_sandbox_goes_on_from_a_checkpoint(
    vm: Sandbox, places: Paths
) -> None:
    await say(vm, "echo 1 > /dev/shm/f; echo 1 > /root/f")
    await vm.checkpoint("one")
    await vm.checkpoint("two")
    await vm.stop()
    place = sandbox_dir(places, vm.id)
    broken = place.checkpoints / History(place).find("two").id
    (broken / "node.json").write_text("{")
    place.head.write_text("{")
    with pytest.raises(HistoryError, match=r"head\.json cannot be read") as caught:
        await vm.start()
    assert "start --at" in hint_of(caught.value)
    await vm.delete_checkpoint(broken.name)
    await vm.start(at="one")
    assert await say(vm, "cat /root/f /dev/shm/f; echo 2 > /root/f; sync") == "1\n1"
    assert place.broken_head.exists()
    assert not broken.exists()
    await vm.checkpoint("three")
    await vm.stop()
    assert file_of_stopped(places, vm, "/root/f") == b"2\n"


async def test_a_damaged_file_is_refused_by_name_and_the_present_goes_on(
    vm: Sandbox, places: Paths
) -> None:
    await vm.checkpoint("good")
    await say(vm, "dd if=/dev/urandom of=/dev/shm/r bs=1M count=2 2>&1")
    await vm.checkpoint("bad")
    node = History(sandbox_dir(places, vm.id)).find("bad")
    damaged = sandbox_dir(places, vm.id).memory / node.pages[-1].name
    flip_bit(damaged, 4096 * 3 + 5)
    await say(vm, "echo present > /dev/shm/now")
    with pytest.raises(HistoryError, match=damaged.name):
        await vm.revert("bad")
    assert await say(vm, "cat /dev/shm/now") == "present"
    await vm.revert("good")
    assert await say(vm, "ls /dev/shm") == ""


async def test_qemu_killed_after_a_checkpoint_loses_nothing_of_it(
    vm: Sandbox, places: Paths
) -> None:
    await say(vm, "echo kept > /dev/shm/f; echo kept > /root/f; sync")
    await vm.checkpoint("kept")
    run = Sandbox.list()[0].run
    assert run is not None
    os.kill(run.qemu_pid, signal.SIGKILL)
    wait_for(lambda: Sandbox.list()[0].status is Status.CRASHED, what="the crash")
    with pytest.raises(StateError):
        await vm.checkpoint("late")
    await vm.stop()
    await vm.start(at="kept")
    assert await say(vm, "cat /dev/shm/f /root/f") == "kept\nkept"


async def test_a_full_disk_during_a_checkpoint_costs_only_the_checkpoint(
    places: Paths, prepared: Paths
) -> None:
    with small_disk(prepared, places.data.parent / "disk", 200 * MIB) as small:
        async with Sandbox(image="debian", name="box") as vm:
            await say(vm, "echo here > /dev/shm/f")
            await vm.checkpoint("one")
            (small.data / "ballast").write_bytes(bytes(60 * MIB))
            await say(vm, "head -c 12M /dev/urandom > /dev/shm/r")
            with pytest.raises(DiskSpaceError):
                await vm.checkpoint("two")
            assert await say(vm, "cat /dev/shm/f") == "here"
            assert [c.tag for c in vm.checkpoints()] == ["one"]
            assert len(list(sandbox_dir(small, vm.id).checkpoints.iterdir())) == 1
            subprocess.run(["mount", "-o", "remount,size=600m", small.data], check=True)
            await vm.checkpoint("two")
            await vm.revert("one")
            assert await say(vm, "ls /dev/shm") == "f"
