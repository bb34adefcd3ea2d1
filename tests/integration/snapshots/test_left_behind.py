"""A start at a checkpoint leaves the present disk behind: as a checkpoint that has a disk only."""

from __future__ import annotations

import asyncio

import pytest
from quicksand import Sandbox
from quicksand.base.errors import DiskSpaceError, HistoryError
from quicksand.base.paths import Paths

from quicksand_tui.model.remedy_words import hint_of
from tests.integration.disks import file_of_stopped
from tests.integration.guests import say

pytestmark = pytest.mark.vm


@pytest.fixture
async def stopped(vm: Sandbox) -> Sandbox:
    """Its checkpoint "a" has one file, its disk when it was stopped another."""
    await say(vm, "echo a > /root/f; echo a > /dev/shm/f")
    await vm.checkpoint("a")
    await say(vm, "echo later > /root/f")
    await vm.stop()
    return vm


async def test_it_is_kept_once_and_can_be_cloned_and_gone_back_to(stopped: Sandbox) -> None:
    vm = stopped
    await vm.start(at="a")
    await vm.kill()  # as if the plug was pulled at once: nothing has been written
    await vm.start(at="a")
    assert await say(vm, "cat /root/f /dev/shm/f") == "a\na"
    a, kept, *more = vm.checkpoints()
    assert len(more) <= 1, "what is there already is not kept again"
    assert kept.tag.startswith("before start at a ")
    assert (kept.tier, kept.auto, kept.parent) == ("disk", True, a.id)
    assert [change.path for change in await vm.diff("a", kept.id)].count("/root/f") == 1
    with pytest.raises(HistoryError, match="no memory") as caught:
        await vm.revert(kept.id)
    assert f"start --at {kept.id}" in hint_of(caught.value)
    assert await say(vm, "cat /root/f") == "a"
    (clone,) = await vm.clone(at=kept.id)
    try:
        assert await say(clone, "cat /root/f") == "later"
        assert await say(clone, "cat /etc/machine-id") != await say(vm, "cat /etc/machine-id")
    finally:
        await clone.stop()
    await vm.stop()
    await vm.start(at=kept.id)
    assert vm.boot_timing is not None
    assert vm.boot_timing.mode == "cold boot"
    assert await say(vm, "cat /root/f; ls /dev/shm") == "later"
    await vm.checkpoint("from there")
    assert vm.checkpoints()[-1].parent == kept.id


async def test_a_start_that_is_cancelled_or_cannot_keep_it_changes_nothing(
    stopped: Sandbox, places: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskSpaceError("no space left")

    vm = stopped
    starting = asyncio.create_task(vm.start(at="a"))
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert [made.tag for made in vm.checkpoints()] == ["a"]
    with monkeypatch.context() as patch:
        patch.setattr("quicksand.snapshots.last_checkpoint.seal_layers", full)
        with pytest.raises(DiskSpaceError):
            await vm.start(at="a")
    assert [made.tag for made in vm.checkpoints()] == ["a"]
    assert file_of_stopped(places, vm, "/root/f") == b"later\n"
