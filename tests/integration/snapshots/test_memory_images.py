"""Memory images of real VMs: written when much is new, mapped by a revert, kept by the next."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand import Sandbox
from quicksand.base.errors import HistoryError
from quicksand.base.paths import Paths
from quicksand.records.layout import SandboxDir, sandbox_dir
from quicksand.snapshots.history import History

from tests.integration.guests import say
from tests.integration.small_disks import MIB
from tests.integration.snapshots.files import flip_bit

pytestmark = pytest.mark.vm


SUMS = "for n in 0 41 99; do dd if=/dev/shm/r bs=1M count=1 skip=$n status=none | md5sum; done"
"""Spots of a large file: all of it would take the guest's processor seconds."""


@pytest.fixture
async def vm(places: Paths) -> AsyncIterator[Sandbox]:
    async with Sandbox(image="debian", name="box", warm=False) as sandbox:
        yield sandbox


@pytest.fixture
def place(vm: Sandbox, places: Paths) -> SandboxDir:
    return sandbox_dir(places, vm.id)


def mapped() -> str:
    """What the sandbox's QEMU maps."""
    run = Sandbox.list()[0].run
    assert run is not None
    return Path(f"/proc/{run.qemu_pid}/maps").read_text()


async def test_a_full_memory_is_one_image_that_a_revert_maps_unless_it_is_damaged(
    vm: Sandbox, place: SandboxDir
) -> None:
    await say(vm, "yes one | head -c 100M > /dev/shm/r")
    sums = await say(vm, SUMS)
    await vm.checkpoint("one")
    one = History(place).find("one")
    image = place.memory / one.memory
    assert image.name == f"{one.id}.ram"
    assert 100 * MIB < image.stat().st_blocks * 512 < image.stat().st_size == 512 * MIB
    assert list(place.memory.glob("*.ram")) == [image]
    # What the guest wrote while the image was made.
    assert sum(path.stat().st_size for path in place.memory.glob("*.pages")) < 8 * MIB
    # The run goes on without the image, and its checkpoints refer to it.
    await say(vm, "echo 2 > /dev/shm/f")
    second = await vm.checkpoint("two")
    assert second.bytes_written < 60 * MIB
    assert History(place).find("two").memory == one.memory
    # Damaged, it is refused by its name, and the present goes on.
    at = image.stat().st_size - 9
    flip_bit(image, at)
    with pytest.raises(HistoryError, match=image.name):
        await vm.revert("one")
    assert await say(vm, "cat /dev/shm/f") == "2"
    flip_bit(image, at)
    await vm.revert("two", keep_now=False)
    assert str(image) in mapped()
    assert await say(vm, "cat /dev/shm/f; " + SUMS) == f"2\n{sums}"
    # Now the run maps it; its own checkpoints say so, too.
    await say(vm, "echo 3 > /dev/shm/f")
    await vm.checkpoint("three")
    assert History(place).find("three").memory == one.memory
    await vm.revert("one", keep_now=False)
    assert await say(vm, "ls /dev/shm; " + SUMS) == f"r\n{sums}"
    await vm.revert("three", keep_now=False)
    assert await say(vm, "cat /dev/shm/f; " + SUMS) == f"3\n{sums}"


@pytest.mark.soak
async def test_a_new_image_takes_over_when_most_of_the_memory_is_another(
    vm: Sandbox, place: SandboxDir
) -> None:
    await say(vm, "echo 1 > /dev/shm/f")
    await vm.checkpoint("one")
    await vm.revert("one", keep_now=False)
    await say(vm, "yes two | head -c 190M > /dev/shm/r")
    sums = await say(vm, SUMS)
    await vm.checkpoint("two")
    one, two = (History(place).find(tag) for tag in ("one", "two"))
    assert two.memory == f"{two.id}.ram" != one.memory
    await vm.delete_checkpoint("one")
    # What the running QEMU maps stays, although no checkpoint needs it.
    await say(vm, "echo 3 > /dev/shm/f")
    await vm.checkpoint("three")
    assert History(place).find("three").memory == two.memory
    for tag, text in (("two", "1"), ("three", "3")):
        await vm.stop()
        await vm.start(at=tag)
        assert await say(vm, "cat /dev/shm/f; " + SUMS) == f"{text}\n{sums}"
    await vm.stop()
    History(place).sweep()
    assert [path.name for path in place.memory.glob("*.ram")] == [two.memory]
    for tag in ("two", "three"):
        await vm.delete_checkpoint(tag)
    assert list(place.memory.iterdir()) == []
