"""Code that was written since the checkpoint is forgotten with it: TCG keeps what it has translated
of a page until somebody tells it that the page was written. A program that rewrites its own code
calls it after each revert (in_guest/rewriting.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from quicksand import Checkpoint, Sandbox
from quicksand.base.arch import Architecture
from quicksand.snapshots.reverting import Form

from tests.integration.guests import say
from tests.integration.snapshots.witnesses import State, Witness

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(
        Architecture.host() is not Architecture.X86_64, reason="the code is that of x86-64"
    ),
]

DROP = "sync; echo 3 > /proc/sys/vm/drop_caches"
"""What is read from files is no longer in memory (proc(5))."""

SWITCH = "/proc/sys/kernel/sched_schedstats"
"""A branch that Linux writes into its own code, or out of it (static keys)."""

LOOK = f"for n in 1 2 3; do cat {SWITCH}; grep -c wait_max /proc/self/sched || true; done"
"""Prints what two functions of the kernel have there, thrice."""

OFF, ON = "0\n0\n0\n0\n0\n0", "1\n1\n1\n1\n1\n1"


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.soak)])
def vm_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"cpus": request.param}


@pytest.fixture
async def program(vm: Sandbox) -> AsyncIterator[Witness]:
    witness = await Witness.start(vm, "rewriting")
    yield witness
    await witness.end()


async def rewrite(program: Witness, version: int) -> None:
    await program.tell(version)
    await runs(program, version)


async def runs(program: Witness, version: int) -> State:
    """All of its code is of this version, now and for some more rounds."""
    state = await program.go_on()
    return await program.until(
        lambda now: now["version"] == version and now["rounds"] > state["rounds"] + 3,
        what=f"code of version {version}",
    )


@pytest.fixture
def some_are_warm(reverts: list[Checkpoint]) -> Iterator[None]:
    """Translations are kept by reverts of this form alone."""
    yield
    assert Form.WARM in [at.revert_form for at in reverts]


async def go_to_and_fro(vm: Sandbox, program: Witness, times: int) -> None:
    await rewrite(program, 1)
    await vm.checkpoint("one")
    for number in range(times):
        later = 2 + number % 100
        await rewrite(program, later)
        if number % 2:
            await say(vm, DROP)
            await program.go_on()
        await vm.revert("one")
        assert (await program.go_on())["version"] == 1
        if number % 2:
            await say(vm, DROP)  # and of files the disk has the code of then, too
            await runs(program, 1)
        await vm.undo()
        assert (await program.go_on())["version"] == later
        if number % 2:
            await say(vm, DROP)
            await runs(program, later)
        await vm.revert("one", keep_now=False)
        assert (await program.go_on())["version"] == 1


async def test_after_a_revert_and_an_undo_the_code_of_then_runs(
    vm: Sandbox, program: Witness
) -> None:
    await go_to_and_fro(vm, program, 2)


@pytest.mark.soak
@pytest.mark.usefixtures("some_are_warm")
@pytest.mark.timeout(1800)
async def test_it_does_a_hundred_times(vm: Sandbox, program: Witness) -> None:
    await go_to_and_fro(vm, program, 100)


async def test_code_that_was_not_there_at_the_checkpoint_is_there_after_an_undo(
    vm: Sandbox,
) -> None:
    """And in its place is what was there, whatever that was."""
    await vm.checkpoint("none")
    program = await Witness.start(vm, "rewriting")
    await rewrite(program, 7)
    await vm.revert("none")
    assert await program.state() is None
    other = await Witness.start(vm, "rewriting")  # in the same memory, as it may be
    await rewrite(other, 8)
    with_seven = vm.checkpoints()[-1]
    await vm.revert(with_seven.id)
    assert (await program.go_on())["version"] == 7
    await vm.undo()
    assert (await program.go_on())["version"] == 8
    await program.end()


@pytest.mark.usefixtures("some_are_warm")
async def test_the_kernels_own_code_is_that_of_then(vm: Sandbox) -> None:
    assert await say(vm, LOOK) == OFF
    await vm.checkpoint("off")
    await say(vm, f"echo 1 > {SWITCH}")
    assert await say(vm, LOOK) == ON
    await vm.revert("off")
    assert await say(vm, LOOK) == OFF
    await vm.undo()
    assert await say(vm, LOOK) == ON
    await vm.revert("off", keep_now=False)
    assert await say(vm, LOOK) == OFF
