"""kill -9 at random moments of checkpoint, revert, clone and delete: of the client, of QEMU, of the
QEMU that is about to take over, of the keeper (scoreboard R1, R2; tests/crash.py has the rules)."""

from __future__ import annotations

import pytest

from tests.crash import REVERTS, kill_at_steps, run_matrix

pytestmark = pytest.mark.vm

POINTS = 6
SOAK_POINTS = 50
STEPS_MAX, STRIDE = 5000, 11
"""A revert has some 500 steps."""


async def test_accidents_cost_nothing_but_what_they_hit() -> None:
    counts = await run_matrix(20, POINTS, print)
    assert sum(counts.values()) == POINTS
    assert counts.get("missed", 0) < POINTS / 2


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(4))
async def test_two_hundred_accidents(seed: int) -> None:
    counts = await run_matrix(seed, SOAK_POINTS, print)
    print(counts)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(100, 104))
async def test_two_hundred_accidents_of_reverts(seed: int) -> None:
    counts = await run_matrix(seed, SOAK_POINTS, print, REVERTS)
    print(counts)


@pytest.mark.soak
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("in_new_qemu", [False, True], ids=["in place", "new QEMU"])
@pytest.mark.parametrize(
    "targets",
    ["client", "keeper", "qemu", "client+keeper", "client+qemu", "qemu+keeper", "client+finisher"],
)
async def test_whoever_is_killed_at_whatever_step_of_a_revert_both_states_are_kept(
    targets: str, in_new_qemu: bool
) -> None:
    steps = range(1, STEPS_MAX, STRIDE)
    struck = await kill_at_steps(targets.split("+"), steps, print, in_new_qemu=in_new_qemu)
    assert 10 < struck < len(steps)
