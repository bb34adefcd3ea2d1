"""Programs that count in memory and on the disk go on from where the checkpoint has them: never
from later, and both from the same number (in_guest/counting.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from quicksand import Sandbox

from tests.integration.guests import say
from tests.integration.snapshots.witnesses import Witness

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

STORM = "while :; do head -c 300k /dev/urandom > /dev/shm/storm-$$; done"
"""Writes memory, and never rests."""


@pytest.fixture(scope="module", params=[2, 1])
def vm_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"cpus": request.param}


@pytest.fixture(params=["busy", "idle"])
async def load(vm: Sandbox, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    if request.param == "busy":
        for _ in range(3):
            await vm.spawn(["sh", "-c", STORM], detach=True)
    yield
    if request.param == "busy":
        await say(vm, "pkill -KILL -f '[u]random'; rm -f /dev/shm/storm-*")


async def count_on(vm: Sandbox, times: int) -> None:
    program = await Witness.start(vm, "counting", "0.002")
    await program.tell(1)
    before = await program.until(lambda now: now["era"] == 1, what="the first era")
    await vm.checkpoint("one")
    after = await program.go_on(0)
    for number in range(times):
        await program.tell(2 + number)
        later = await program.until(lambda now: now["era"] > 1, what="another era")
        await vm.revert("one", keep_now=number % 3 == 0)
        now = await program.go_on()
        assert now["era"] == 1, "it has what was counted since"
        assert now["rounds"] >= before["rounds"]
        if number % 3 == 0:
            await vm.undo()
            now = await program.go_on()
            assert (now["era"], now["rounds"] >= later["rounds"]) == (later["era"], True)
    assert after["era"] == 1
    await program.end()


@pytest.mark.soak
async def test_both_go_on_from_the_checkpoint(vm: Sandbox, load: None) -> None:
    await count_on(vm, 2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_both_go_on_from_it_two_hundred_times(vm: Sandbox, load: None) -> None:
    await count_on(vm, 200)
