"""The tier "internal": QEMU's own snapshots, of a VM that outlives these tests."""

from __future__ import annotations

import asyncio

import pytest
from quicksand import Sandbox, Status
from quicksand.base.errors import ConfigError, HistoryError, RevertedError
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.snapshots.tier_choice import VARIABLE

from tests.integration.guests import say
from tests.integration.snapshots.files import flip_bit, memory_of

pytestmark = [pytest.mark.vm, pytest.mark.in_any_form]


@pytest.fixture(autouse=True)
def internal_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "internal")


async def test_a_damaged_one_is_refused_by_name_and_the_present_goes_on(
    vm: Sandbox, places: Paths
) -> None:
    made = await vm.checkpoint("bad")
    damaged = sandbox_dir(places, vm.id).memory / f"{made.id}.state"
    flip_bit(damaged, damaged.stat().st_size // 2)
    await say(vm, "echo present > /dev/shm/now")
    with pytest.raises(HistoryError, match=damaged.name):
        await vm.revert("bad")
    assert await say(vm, "cat /dev/shm/now") == "present"


@pytest.mark.soak
async def test_clients_are_told_of_a_revert_and_a_paused_sandbox_stays_paused(vm: Sandbox) -> None:
    await say(vm, "echo 1 > /dev/shm/f")
    await vm.pause()
    await vm.checkpoint("here")
    assert Sandbox.list()[0].status is Status.PAUSED
    await vm.resume()
    other = Sandbox.attach(vm.id)
    call = asyncio.create_task(other.execute("echo 2 > /dev/shm/f; sleep 600", timeout=None))
    while not (await vm.execute(["pgrep", "-x", "sleep"])).stdout:
        pass
    await vm.revert("here")
    async with asyncio.timeout(60):
        with pytest.raises(RevertedError, match="'here'"):
            await call
    assert await say(other, "cat /dev/shm/f") == "1"
    other.close()


async def test_a_tier_that_there_is_not_is_refused(vm: Sandbox) -> None:
    with pytest.raises(ConfigError, match="'fast'"):
        await vm.checkpoint("x", tier="fast")
    assert await say(vm, "echo alive") == "alive"


async def test_a_cancelled_checkpoint_is_none_and_the_vm_runs_on(
    vm: Sandbox, places: Paths
) -> None:
    taking = asyncio.create_task(vm.checkpoint("never"))
    while not any(name.endswith(".state") for name in memory_of(vm, places)):
        await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert await say(vm, "echo alive") == "alive"
    assert vm.checkpoints() == []
    assert not any(name.endswith(".state") for name in memory_of(vm, places))
