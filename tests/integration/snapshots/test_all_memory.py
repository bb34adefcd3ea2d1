"""Checkpoints are compared with all of the guest's memory (comparing.py): after every kind of write
that a guest's memory sees, no page is missed."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.errors import HistoryError
from quicksand.base.paths import Paths, paths
from quicksand.records.registry import Registry
from quicksand.snapshots import comparing
from quicksand.snapshots.guest_ram import PAGE, GuestRam
from quicksand.snapshots.memory_copying import Fate
from quicksand.snapshots.page_set import PageSet
from quicksand.snapshots.storing import Storage, find_image
from quicksand.snapshots.taking import find_shape, start_capture, working_on
from quicksand.snapshots.tracking import ANONYMOUS, LEVELS, VARIABLE, find_level
from quicksand.snapshots.verified import Verified
from quicksand.warm import templates

from tests.integration.shared.conftest import places, vm, vm_name
from tests.kernel import promised_level

__all__ = ["places", "vm", "vm_name"]

pytestmark = pytest.mark.vm

LOADS = (
    "true",
    "head -c 9M /dev/urandom > /dev/shm/a",
    # The host's kernel writes to the guest's memory: O_DIRECT reads of virtio-blk.
    "dd if=/dev/vda of=/dev/null bs=1M count=24 iflag=direct status=none",
    "echo 3 > /proc/sys/vm/drop_caches; find /usr -xdev -type f | head -n 200 | xargs cat | wc -c",
    "head -c 6M /dev/urandom > /root/f; sync",
    "for n in $(seq 20); do sh -c true; done",
    "rm /dev/shm/a; head -c 8M /dev/zero > /dev/shm/b",
)
BUSY = "while :; do head -c 300k /dev/urandom > /dev/shm/busy; done"


@pytest.fixture(scope="module")
def vm_options() -> dict[str, Any]:
    """Little memory, since all of it is compared each time."""
    return {"memory": "192M"}


@pytest.fixture(autouse=True)
def compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(comparing.VARIABLE, "1")


async def look(vm: Sandbox, *, exact: bool = False) -> None:
    """Take a checkpoint, which fails if a page differs. ``exact``: it must be one of only what was
    written since the last one, where anything tracks that."""
    level = find_level().name
    made = await vm.checkpoint()
    assert made.tier == "pages"
    assert level in made.tier_note or "since the start" in made.tier_note, made.tier_note
    if exact and level != ANONYMOUS:
        assert "since the last checkpoint" in made.tier_note


async def load(vm: Sandbox, command: str) -> None:
    result = await vm.execute(command, timeout=300)
    assert result.exit_code == 0, result.stderr


async def go_through(vm: Sandbox, rounds: int = 1) -> None:
    """Every load, then a revert into the midst of it, then a guest that never rests."""
    for number in range(rounds):
        for command in LOADS:
            await load(vm, command)
            await look(vm)
        await vm.files.write("/dev/shm/uploaded", os.urandom(3 << 20))
        await look(vm)
        nodes = [node for node in vm.checkpoints() if not node.auto]
        await vm.revert(nodes[-len(LOADS) // 2].id)
        await look(vm, exact=True)
        busy = await vm.execute(f"({BUSY}) > /dev/null 2>&1 & echo $!")
        for _ in range(3):
            await look(vm)
        await load(vm, f"kill {busy.stdout}")
        if number % 3 == 2:
            for node in nodes[:-3]:
                await vm.delete_checkpoint(node.id)


async def test_no_page_is_missed(vm: Sandbox) -> None:
    assert find_level().name == promised_level(), find_level().why
    await go_through(vm)


async def test_a_page_that_is_missed_is_noticed(
    vm: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    await look(vm)
    before = vm.checkpoints()
    await load(vm, "head -c 4M /dev/urandom > /dev/shm/a")
    add = Storage.add
    monkeypatch.setattr(
        Storage, "add", lambda self, runs, *rest, **named: add(self, [], *rest, **named)
    )
    with pytest.raises(HistoryError, match="not the guest's memory"):
        await vm.checkpoint()
    monkeypatch.setattr(Storage, "add", add)
    assert [node.id for node in vm.checkpoints()] == [node.id for node in before]
    await look(vm)


@pytest.mark.soak
@pytest.mark.parametrize("much", [24, 100])
async def test_a_present_that_is_overwritten_after_its_pause_is_kept_whole(
    vm: Sandbox, much: int
) -> None:
    """The guest writes all the time. Written again from the checkpoint, its memory is as it was,
    and it runs on."""
    await look(vm)
    await load(vm, f"({BUSY}) > /dev/null 2>&1 &")
    registry = Registry(paths())
    for mib in (1, much):
        await load(
            vm, f"head -c {mib}M /dev/urandom > /dev/shm/a; sha256sum /dev/shm/a > /root/sum"
        )
        record = registry.find(vm.id).record
        assert record is not None
        async with working_on(registry, record) as live:
            shape = await find_shape(live)
            capture = start_capture(live)
            await capture.prepare(fate=Fate.OVERWRITTEN)
            await capture.freeze(resume=False)
            ram = await GuestRam.locate(
                live.hypervisor,
                live.run.qemu_pid,
                find_image(live.place, live.history.head().memory),
                live.record.config.memory_bytes,
                shape["arch"],
            )
            before = copy_of(ram)
            written = ram.written()
            for first, count in written:
                ram.write([(first, count)], memoryview(bytearray(b"\xa5") * (count * PAGE)))
            node = await capture.store(tag=f"{mib} MiB", note="", tier_note="", shape=shape)
            with contextlib.closing(PageSet(live.place, node, Verified.of_user())) as pages:
                pages.fetch(written)
                pages.write(ram, written)
            assert copy_of(ram) == before
            await live.hypervisor.resume()
            await capture.advance_head(node)
        await load(vm, "sha256sum -c /root/sum")
        await look(vm)
    await vm.revert("1 MiB")
    await load(vm, "sha256sum -c /root/sum")


def copy_of(ram: GuestRam) -> bytearray:
    """All memory of the guest."""
    data = bytearray(ram.size)
    ram.read([(0, ram.size // PAGE)], memoryview(data))
    return data


async def test_where_nothing_is_compared_the_checkpoint_says_so(vm: Sandbox) -> None:
    made = await vm.checkpoint(tier="internal")
    assert f"{comparing.VARIABLE} compares nothing" in made.tier_note


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cold", [False, True], ids=["template", "cold"])
async def test_no_page_is_missed_in_a_long_time(
    places: Paths, monkeypatch: pytest.MonkeyPatch, level: str, cold: bool
) -> None:
    """A cold start has anonymous memory, with huge pages where the host uses them."""
    monkeypatch.setenv(VARIABLE, level)
    if cold:
        monkeypatch.setenv(templates.VARIABLE, "off")
    async with Sandbox(image="debian") as vm:
        await go_through(vm, rounds=5)
        (clone,) = await vm.clone(1)
        try:
            await go_through(clone)
        finally:
            await clone.kill()
