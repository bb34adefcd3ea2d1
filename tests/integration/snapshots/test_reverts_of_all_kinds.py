"""Reverts of sandboxes that are paused, that came to be in every way, and of guests that reboot."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox, Status
from quicksand.base.errors import AgentError
from quicksand.base.paths import Paths

from tests.conftest import Patience
from tests.integration.guests import IDENTITY, is_on_time, say
from tests.integration.spares.conftest import Make, make, mode_of

__all__ = ["make"]

pytestmark = pytest.mark.vm

LOOK = "cat /root/f /dev/shm/f"


@pytest.fixture(
    params=["template", *(pytest.param(way, marks=pytest.mark.soak) for way in ("spare", "boot"))]
)
async def any_vm(
    places: Paths, make: Make, request: pytest.FixtureRequest
) -> AsyncIterator[Sandbox]:
    """One that has come to be in each way."""
    if request.param == "spare":
        await make()
    async with Sandbox(image="debian", name="box", warm=request.param != "boot") as vm:
        assert request.param in mode_of(vm)
        yield vm


async def write(vm: Sandbox, word: str) -> None:
    await say(vm, f"echo {word} | tee /root/f > /dev/shm/f; sync")


async def is_at(vm: Sandbox, word: str) -> None:
    assert await say(vm, LOOK) == f"{word}\n{word}"


def status_of(vm: Sandbox) -> Status:
    return next(entry.status for entry in Sandbox.list() if entry.id == vm.id)


async def test_one_that_is_paused_can_be_reverted_and_undone(patient: None, vm: Sandbox) -> None:
    await write(vm, "one")
    await vm.checkpoint("one")
    await write(vm, "two")
    await vm.pause()
    await vm.revert("one")
    assert status_of(vm) is Status.RUNNING
    await is_at(vm, "one")
    await vm.pause()
    await vm.undo()
    assert status_of(vm) is Status.RUNNING
    await is_at(vm, "two")
    # What was taken of a paused one.
    await vm.pause()
    await vm.checkpoint("paused")
    await vm.revert("paused")
    assert status_of(vm) is Status.RUNNING
    await is_at(vm, "two")
    (clone,) = await vm.clone(at="paused")
    try:
        await is_at(clone, "two")
        assert await is_on_time(clone)
    finally:
        await clone.kill()


async def test_one_that_came_to_be_in_any_way(any_vm: Sandbox) -> None:
    """To its first checkpoint, which has all that was written since its start, to one of a run that
    goes on from a checkpoint, and in a clone."""
    await write(any_vm, "one")
    await any_vm.checkpoint("one")
    await write(any_vm, "two")
    await any_vm.revert("one")
    await is_at(any_vm, "one")
    await write(any_vm, "three")
    await any_vm.checkpoint("three")
    await any_vm.undo()
    await is_at(any_vm, "two")
    await any_vm.revert("three", keep_now=False)
    await is_at(any_vm, "three")
    (clone,) = await any_vm.clone(at="one")
    try:
        own = (await say(clone, IDENTITY)).splitlines()
        await write(clone, "clone")
        await clone.revert("one")
        await is_at(clone, "one")
        now = (await say(clone, IDENTITY)).splitlines()
        assert (own[0], own[3], own[4]) == (now[0], now[3], now[4])
        assert own[2] != now[2]
        await clone.undo()
        await is_at(clone, "clone")
    finally:
        await clone.kill()
    await is_at(any_vm, "three")


async def test_one_that_was_stopped_or_started_at_a_checkpoint(vm: Sandbox) -> None:
    await say(vm, "sleep 7777 >&- 2>&- &")
    await write(vm, "one")
    await vm.checkpoint("one")
    await write(vm, "two")
    await vm.checkpoint("two")
    await vm.stop()
    await vm.start(at="one")
    await is_at(vm, "one")
    assert await say(vm, "pgrep -c -x sleep") == "1"
    await vm.revert("two")
    await is_at(vm, "two")
    await vm.stop()
    await vm.start()  # it boots, and has no memory of the checkpoint's
    assert await say(vm, "cat /root/f; ls /dev/shm") == "two"
    await vm.revert("two")
    await is_at(vm, "two")
    await vm.undo()
    assert await say(vm, "cat /root/f; ls /dev/shm") == "two"


async def test_to_a_checkpoint_of_another_sandbox_and_a_clone_of_that(vm: Sandbox) -> None:
    await write(vm, "box")
    await vm.checkpoint("there")
    async with Sandbox(image="debian", name="other") as other:
        own = (await say(other, IDENTITY)).splitlines()
        await write(other, "other")
        await other.checkpoint("here")
        await other.revert("box:there")
        assert await say(other, "hostname") == "other"
        assert {c.tag for c in other.checkpoints() if not c.auto} == {"here", "box:there"}
        await other.undo()
        await is_at(other, "other")
        for goal, word in (("box:there", "box"), ("here", "other"), ("box:there", "box")):
            await other.revert(goal)
            await is_at(other, word)
        await write(other, "later")
        await other.checkpoint("later")
        (clone,) = await other.clone(at="box:there")
        try:
            found = [(await say(one, IDENTITY)).splitlines() for one in (vm, other, clone)]
            assert (found[1][0], found[1][3:5]) == (own[0], own[3:5])
            for line in zip(*found, strict=True):
                assert len(set(line)) == len(line)
            await write(clone, "clone")
            await clone.revert("box:there")
            await is_at(clone, "box")
        finally:
            await clone.kill()
        await other.revert("later")
        await is_at(other, "later")
    await is_at(vm, "box")


@pytest.mark.soak
async def test_a_disk_that_begins_elsewhere_is_read_whole(
    places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have booted, so their disks have only the image in common. What the guest has not read
    yet comes from the other's."""
    monkeypatch.setenv("QUICKSAND_TEMPLATES", "off")
    sums = "echo 3 > /proc/sys/vm/drop_caches; find /usr/sbin -type f | sort | xargs sha256sum"
    async with (
        Sandbox(image="debian", name="a") as a,
        Sandbox(image="debian", name="b") as b,
    ):
        await say(a, "echo a > /root/f; sync")
        await a.checkpoint("there")
        await say(b, "echo b > /root/f; sync")
        await b.checkpoint("own")
        await b.revert("own")
        for goal, word in (("a:there", "a"), ("own", "b"), ("a:there", "a")):
            await b.revert(goal)
            assert await say(b, sums) == await say(a, sums)
            assert await say(b, "cat /root/f") == word


async def reboot(vm: Sandbox) -> str:
    """Have the guest boot anew; returns the id of that boot."""
    boot_id = "cat /proc/sys/kernel/random/boot_id"
    before = await say(vm, boot_id)
    await vm.request("shutdown", {"mode": "reboot", "grace": 1})
    patience = Patience(60)
    while True:
        with contextlib.suppress(AgentError):  # it is on its way down or up
            now = await vm.execute(boot_id)
            if now.exit_code == 0 and now.stdout.strip() != before:
                return now.stdout.strip()
        assert not patience.is_over(), "it does not come up"
        await asyncio.sleep(0.05)


async def test_a_guest_that_was_reverted_reboots_and_can_be_reverted_again(vm: Sandbox) -> None:
    """To before it booted, and to after it."""
    await write(vm, "one")
    await vm.checkpoint("one")
    await write(vm, "two")
    for _ in range(2):  # the first one after a start may need another QEMU
        await vm.revert("one", keep_now=False)
    boot = await reboot(vm)
    assert await say(vm, "cat /root/f; ls /dev/shm") == "one"
    await write(vm, "three")
    await vm.checkpoint("three")
    await vm.revert("one")
    await is_at(vm, "one")
    await vm.revert("three")
    await is_at(vm, "three")
    assert await say(vm, "cat /proc/sys/kernel/random/boot_id") == boot
    assert await say(vm, "dmesg | grep -ci 'call trace' || true") == "0"
