"""The guest's clocks go back with it, go on from there as fast as the host's, and tell the host's
time: after a revert, an undo, in a clone and after a pause."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.guest.fitness import TOLERANCE, compare, read_clock

from tests.conftest import in_time
from tests.integration.guests import say
from tests.integration.snapshots.witnesses import State, Witness

pytestmark = [pytest.mark.vm, pytest.mark.usefixtures("patient"), pytest.mark.timeout(600)]

STALL_S = 3
"""Seconds after which the kernel complains of a processor that stands still; the least that it
takes."""

AHEAD_S = STALL_S + 0.5
"""How far the present is ahead of the checkpoint."""

LATE_S = 1.0
"""By how much a clock may be ahead of what the host counts, beside: it is less than `AHEAD_S`."""

WALL_S = 0.05
WINDOW_S = 1.0

COMPLAINTS = "dmesg | grep -iE 'rcu: INFO|stall|clocksource:.*(unstable|skew)|lockup' || true"
SOURCE = "cat /sys/devices/system/clocksource/clocksource0/current_clocksource"


@pytest.fixture(scope="module", params=[2, pytest.param(1, marks=pytest.mark.soak)])
def vm_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each processor has a counter of its own."""
    return {"cpus": request.param}


@pytest.fixture
async def program(vm: Sandbox) -> AsyncIterator[Witness]:
    limit = "/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout"
    await say(vm, f"echo {STALL_S} > {limit}")
    witness = await Witness.start(vm, "ticking")
    yield witness
    await witness.end()


async def check(vm: Sandbox) -> None:
    """A second is one, the time is the host's, and the kernel finds nothing wrong."""
    session = await vm._parts.life.session()
    began = await read_clock(session)

    async def wrong_by() -> float:
        # Nobody sets the clock because this one connects.
        watcher = Sandbox.attach(vm.id, set_clock=False)
        try:
            before = time.time()
            guest = float(await say(watcher, "date +%s.%N"))
            return max(before - guest, guest - time.time())
        finally:
            watcher.close()

    assert await in_time(wrong_by, WALL_S)
    rate = await compare(session, began, TOLERANCE, window_s=WINDOW_S)
    assert rate.is_right(TOLERANCE), rate
    assert await say(vm, COMPLAINTS) == ""


class Instant:
    """The guest's clocks at a moment of the host's."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.host_s = time.monotonic()

    def is_before(self, later: State, host_s: float) -> None:
        """Later, by ``host_s`` seconds of the host at most, the clocks have gone on."""
        for clock in ("monotonic", "uptime"):
            gone = later[clock] - self.state[clock]
            assert 0 <= gone < host_s + LATE_S, f"{clock}: {gone:.3f} s in {host_s:.3f} s"


async def go_to_and_fro(vm: Sandbox, program: Witness, ahead_s: float) -> None:
    before = Instant(await program.go_on())
    await vm.checkpoint("one", replace=True)
    taken_s = time.monotonic() - before.host_s
    await asyncio.sleep(ahead_s)  # that time goes by is what this is about
    present = Instant(await program.go_on())
    began = time.monotonic()
    await vm.revert("one")
    kept_s = time.monotonic() - present.host_s
    state = await program.go_on()
    before.is_before(state, taken_s + time.monotonic() - began)
    await check(vm)
    began = time.monotonic()
    await vm.undo()
    state = await program.go_on()
    present.is_before(state, kept_s + time.monotonic() - began)
    await check(vm)
    began = time.monotonic()
    await vm.revert("one", keep_now=False)
    state = await program.go_on()
    before.is_before(state, taken_s + time.monotonic() - began)
    await check(vm)


async def test_the_clocks_go_back_and_then_on(vm: Sandbox, program: Witness) -> None:
    source = await say(vm, SOURCE)
    await go_to_and_fro(vm, program, AHEAD_S)
    assert await say(vm, SOURCE) == source


async def test_those_of_clones_and_of_who_was_paused_are_right(vm: Sandbox) -> None:
    await vm.checkpoint("one")
    clones = await vm.clone() + await vm.clone(at="one")
    try:
        await asyncio.gather(*(check(clone) for clone in clones))
        await clones[1].revert("one")
        await clones[0].pause()
        await asyncio.sleep(LATE_S)  # that time goes by is what this is about
        await clones[0].resume()
        await asyncio.gather(*(check(clone) for clone in clones))
    finally:
        for clone in clones:
            await clone.kill()


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_they_do_with_half_a_minute_between_and_thirty_times(
    vm: Sandbox, program: Witness
) -> None:
    source = await say(vm, SOURCE)
    await go_to_and_fro(vm, program, 30)
    for _ in range(30):
        await go_to_and_fro(vm, program, AHEAD_S)
    assert await say(vm, SOURCE) == source
