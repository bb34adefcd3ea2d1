"""A keeper that has a lease: it ends QEMU when that runs out, and QEMU ends with it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.errors import MachineError
from quicksand.base.paths import Paths
from quicksand.base.removal import remove
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.keeper_parts import owner
from quicksand.qemu.keeper_parts.owner import Lease, now

from tests.conftest import wait_for
from tests.unit.qemu.test_keeper import DEAF, Stage, alive

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="leashes need Linux")

FOR_EVER = f"echo ready; {DEAF}"


@pytest.fixture
async def stage(places: Paths) -> AsyncIterator[Stage]:
    stage = Stage(places)
    yield stage
    for owned in stage.owned:
        owned.cut()
    await stage.until_gone()
    for root in (stage.runtime.root, stage.place.root):
        if root.exists():
            remove(root)


async def kept(stage: Stage, seconds: float) -> tuple[int, int]:
    """Launch it, give it a lease, and let go of it; the keeper's and QEMU's process ids."""
    owned = await stage.launch(FOR_EVER)
    await stage.said("ready")
    owned.detach_to(stage.runtime.keeper_socket)
    await grant(stage, 1, now() + seconds)
    return owned.keeper_pid, owned.qemu_pid


async def grant(stage: Stage, epoch: int, until: float) -> bool:
    """Renew the lease; whether its program has let go of it."""
    async with await KeeperLink.connect(stage.runtime.keeper_socket) as keeper:
        return bool((await keeper.ask("lease", epoch=epoch, until=until))["let_go"])


async def test_qemu_ends_with_its_lease_and_the_end_says_so(stage: Stage) -> None:
    keeper, qemu = await kept(stage, 0.5)
    wait_for(lambda: not alive(qemu), what="the end of its lease")
    wait_for(lambda: not alive(keeper), what="the end of its keeper")
    assert (stage.ended()["fenced"], stage.ended()["asked"]) == (True, True)


async def test_a_lease_that_is_renewed_goes_on_and_no_answer_shortens_it(stage: Stage) -> None:
    _, qemu = await kept(stage, 600)
    await grant(stage, 1, now() - 5)
    await grant(stage, 2, now() + 600)
    with pytest.raises(MachineError, match="older than 2"):
        await grant(stage, 1, now() + 600)
    assert alive(qemu)
    os.kill(qemu, signal.SIGKILL)
    wait_for(lambda: not alive(qemu), what="its end")
    wait_for(stage.place.exit.exists, what="how it ended")
    assert stage.ended()["fenced"] is False


async def test_the_keeper_knows_whether_its_program_has_let_go_of_it(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER)
    await stage.said("ready")
    assert not await grant(stage, 1, now() + 600)
    owned.detach_to(stage.runtime.keeper_socket)
    deadline = time.monotonic() + 60
    while not await grant(stage, 1, now() + 600):
        assert time.monotonic() < deadline
    os.kill(owned.qemu_pid, signal.SIGKILL)


async def test_qemu_ends_with_a_keeper_that_is_killed(stage: Stage) -> None:
    keeper, qemu = await kept(stage, 600)
    os.kill(keeper, signal.SIGKILL)
    wait_for(lambda: not alive(qemu), what="the kernel to end QEMU")


async def test_a_keeper_that_was_frozen_looks_at_the_lease_before_anything_else(
    stage: Stage,
) -> None:
    keeper, qemu = await kept(stage, 2.0)
    for pid in (keeper, qemu):
        os.kill(pid, signal.SIGSTOP)
    until = time.monotonic() + 2.2
    wait_for(lambda: time.monotonic() > until, what="the lease to run out")
    # An answer that was under way is there already when it goes on.
    os.kill(keeper, signal.SIGCONT)
    with contextlib.suppress(ProcessLookupError):  # if the keeper was quick, it is killed by now
        os.kill(qemu, signal.SIGCONT)
    wait_for(lambda: not alive(qemu), what="the end of its lease")
    wait_for(lambda: not alive(keeper), what="the end of its keeper")
    assert stage.ended()["fenced"] is True


def test_a_lease_that_is_over_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(owner, "now", lambda: clock[0])
    held = Lease()
    assert held.look_at is None and not held.has_ended()
    held.grant(1, 110.0)
    clock[0] = 110.0
    assert held.has_ended()
    with pytest.raises(ValueError, match="is over"):
        held.grant(1, 200.0)
