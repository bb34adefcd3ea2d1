"""Checkpoints and reverts that break off: the client is killed as it copies memory, or one half of
a checkpoint fails."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import MachineError
from quicksand.base.paths import Paths
from quicksand.records.layout import runtime_dir, sandbox_dir
from quicksand.snapshots.layers import Pivot
from quicksand.snapshots.paged import PagesCapture

from tests.conftest import everything_below, our_processes, wait_for
from tests.integration.guests import say

pytestmark = [pytest.mark.vm, pytest.mark.in_any_form]

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
    sandbox = Sandbox.attach(sys.argv[3])
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
    client = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CLIENT, operation, step, vm.id
    )
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


@pytest.mark.parametrize("at", [pytest.param("begin", marks=pytest.mark.soak), "end"])
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
