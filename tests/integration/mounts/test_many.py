"""As many mounts as there can be, through all that has a guest continue from its past."""

from __future__ import annotations

from pathlib import Path

import pytest
from quicksand import Mount, Sandbox

from tests.integration.guests import say

pytestmark = [pytest.mark.vm, pytest.mark.soak]


async def check(vm: Sandbox, directories: list[Path], when: str) -> None:
    """Each mount that is told is one, and what the guest writes there is on the host."""
    count = len(directories)
    write = f"for n in $(seq 0 {count - 1}); do echo {when}-$n > /mnt/m$n/{when} || exit 1; done"
    assert await say(vm, f"{write}; sync; grep -c ' cifs ' /proc/mounts") == str(count), when
    assert len(vm.active_mounts) == count, when
    for number, directory in enumerate(directories):
        assert (directory / when).read_text() == f"{when}-{number}\n", when


@pytest.mark.parametrize(("count", "in_use"), [(16, False), (10, True)])
async def test_every_mount_is_there_again(tmp_path: Path, count: int, in_use: bool) -> None:
    """Also where a program has a file open in mounts of the past, to which the guest's client
    keeps its connections then: their streams are of no use to others."""
    directories = [tmp_path / f"d{number}" for number in range(count)]
    mounts = [Mount(str(at), f"/mnt/m{number}") for number, at in enumerate(directories)]
    for at in directories:
        at.mkdir()
    vm = Sandbox(image="debian", name="many", mounts=mounts)
    await vm.start()
    try:
        await check(vm, directories, "start")
        if in_use:
            await say(vm, "nohup sleep 9999 < /mnt/m0/start 9> /mnt/m1/held > /dev/null 2>&1 &")
        await vm.checkpoint("c")
        await vm.revert("c")
        await check(vm, directories, "revert")
        await vm.undo()
        await check(vm, directories, "undo")
        (clone,) = await vm.clone(1, mounts="rw")
        try:
            await check(clone, directories, "clone")
        finally:
            await clone.stop()
        await vm.stop()
        await vm.start(at="c")
        await check(vm, directories, "start-at")
    finally:
        await vm.stop()
