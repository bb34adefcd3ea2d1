"""Checkpoints of real VMs when a file is damaged, a client or QEMU dies, the disk is full."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from quicksand import Sandbox, Status
from quicksand.base.errors import DiskSpaceError, HistoryError, MachineError, StateError
from quicksand.base.paths import Paths
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.snapshots.history import History
from quicksand.snapshots.layers import Pivot
from quicksand.snapshots.paged import PagesCapture

from quicksand_tui.model.remedy_words import hint_of
from tests.conftest import everything_below, our_processes, wait_for
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
    await vm.start()
    assert await say(vm, "cat /root/f") == "later"


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
    await vm.start()
    assert await say(vm, "cat /root/f") == "2"


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


CLIENT = """
import asyncio, os, signal, sys
from quicksand import Sandbox
from quicksand.snapshots import memory_copying as copying
from quicksand.snapshots.memory_copying import Copier
from quicksand.snapshots.in_place import InPlace
from quicksand.snapshots.storing import Storage

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
owner, name = sys.argv[2].split(".")
setattr(globals()[owner], name, die)
copying.ROUND_MIN = 1 << 20

async def main():
    sandbox = Sandbox.attach("box")
    await (sandbox.checkpoint("never") if sys.argv[1] == "checkpoint" else sandbox.revert("one"))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("operation", "step", "word"),
    [
        ("checkpoint", "Copier.copy_rest", "there"),
        ("revert", "Copier.copy_rest", "there"),
        # While the pages are written: before the pause, or once the revert is certain.
        ("checkpoint", "Storage._sort", "there"),
        ("revert", "Storage._sort", "here"),
        # When the guest has answered.
        ("revert", "InPlace._tidy", "here"),
    ],
)
async def test_a_client_killed_as_memory_is_copied_leaves_the_sandbox_running(
    vm: Sandbox, places: Paths, operation: str, step: str, word: str
) -> None:
    await say(vm, "echo here > /dev/shm/f; echo here > /root/f")
    await vm.checkpoint("one")
    if operation == "revert":
        await vm.revert("one", keep_now=False)  # the QEMU that had booted is gone
    await say(vm, "echo there > /dev/shm/f; echo there > /root/f")
    await say(vm, "head -c 5M /dev/urandom > /dev/shm/more")
    client = await asyncio.create_subprocess_exec(sys.executable, "-c", CLIENT, operation, step)
    assert await client.wait() == -signal.SIGKILL
    runtime = runtime_dir(places, vm.id)
    await asyncio.to_thread(
        wait_for, lambda: not runtime.current().unfinished.exists(), what="the revert's end"
    )
    assert await say(vm, "cat /dev/shm/f /root/f") == f"{word}\n{word}"

    def machines() -> int:
        return sum("qemu-system" in line for line in our_processes(str(places.data)))

    await asyncio.to_thread(wait_for, lambda: machines() == 1, what="only one QEMU")
    lost = operation == "revert" and word == "here"

    def tags() -> list[str]:
        return [c.tag.partition(" to ")[0] for c in vm.checkpoints()]

    expected = ["one", *(["before revert"] if lost else [])]
    await asyncio.to_thread(wait_for, lambda: tags() == expected, what="the state before")
    if lost:
        await vm.undo()
        assert await say(vm, "cat /dev/shm/f /root/f") == "there\nthere"
        await vm.undo()
    await vm.checkpoint("two")
    await vm.revert("one")
    assert await say(vm, "cat /dev/shm/f /root/f") == "here\nhere"
    await vm.revert("two")
    assert await say(vm, "cat /dev/shm/f /root/f") == f"{word}\n{word}"
    place = sandbox_dir(places, vm.id)
    assert len(list(place.checkpoints.iterdir())) == len(vm.checkpoints())


@pytest.mark.parametrize("at", ["begin", "end"])
@pytest.mark.parametrize("half", [(Pivot, "prepare"), (PagesCapture, "_prepare_memory")])
async def test_disk_and_memory_are_prepared_at_once_and_what_one_did_goes_if_the_other_fails(
    vm: Sandbox, places: Paths, half: tuple[type, str], at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await vm.checkpoint("one")
    await say(vm, "echo here > /root/f; head -c 9M /dev/urandom > /dev/shm/f; md5sum /dev/shm/f")
    place = sandbox_dir(places, vm.id)

    def files() -> set[Path]:
        return {path for path in everything_below(place.root) if path.suffix != ".lock"}

    whole, before = getattr(*half), files()

    async def fails(self: object) -> None:
        if at == "end":
            await whole(self)
        raise MachineError("as planned")

    with monkeypatch.context() as patch:
        patch.setattr(*half, fails)
        with pytest.raises(MachineError, match="as planned"):
            await vm.checkpoint("two")
    assert files() <= before
    await vm.checkpoint("two")
    sums = await say(vm, "md5sum /dev/shm/f; rm /dev/shm/f; echo there > /root/f")
    await vm.revert("two")
    assert await say(vm, "md5sum /dev/shm/f; cat /root/f") == f"{sums}\nhere"


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
    await vm.stop()
    await vm.start()
    assert await say(vm, "cat /root/f") == "kept"


async def test_a_full_disk_during_a_checkpoint_costs_only_the_checkpoint(
    places: Paths, prepared: Paths
) -> None:
    with small_disk(prepared, places.data.parent / "disk", 200 * MIB) as small:
        async with Sandbox(image="debian", name="box") as vm:
            await say(vm, "echo here > /dev/shm/f")
            await vm.checkpoint("one")
            (small.data / "ballast").write_bytes(bytes(40 * MIB))
            await say(vm, "head -c 60M /dev/urandom > /dev/shm/r")
            with pytest.raises(DiskSpaceError):
                await vm.checkpoint("two")
            assert await say(vm, "cat /dev/shm/f") == "here"
            assert [c.tag for c in vm.checkpoints()] == ["one"]
            assert len(list(sandbox_dir(small, vm.id).checkpoints.iterdir())) == 1
            subprocess.run(["mount", "-o", "remount,size=600m", small.data], check=True)
            await vm.checkpoint("two")
            await vm.revert("one")
            assert await say(vm, "ls /dev/shm") == "f"
