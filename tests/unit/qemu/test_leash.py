"""The leash: QEMU dies with its owner although nobody looks after it; let off, it lives on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand.base.paths import Paths
from quicksand.base.processes import ProcessKind, holders_of, processes_of
from quicksand.base.removal import remove
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.keeper_parts import owner
from quicksand.qemu.process import Leash

from tests.conftest import wait_for
from tests.unit.qemu.test_keeper import DEAF, Stage, alive

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="Linux's own mechanism")


@pytest.fixture
async def stage(places: Paths) -> AsyncIterator[Stage]:
    stage = Stage(places)
    yield stage
    for owned in stage.owned:
        owned.cut()
        await asyncio.wait_for(owned.wait(), 60)
    await stage.until_gone()
    remove(stage.runtime.root)  # the keeper was killed


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), what="the keeper's death")


async def test_it_dies_with_its_owner_when_the_keeper_is_dead(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {DEAF}")
    await stage.said("ready")
    kill(owned.keeper_pid)
    assert alive(owned.qemu_pid), "the owner lives"
    owned.cut()
    await stage.until_gone()


async def test_let_off_it_lives_although_nobody_is_left(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {DEAF}")
    await stage.said("ready")
    kill(owned.keeper_pid)
    owned.detach()
    assert alive(owned.qemu_pid)
    os.kill(owned.qemu_pid, signal.SIGKILL)


async def test_a_second_machine_dies_with_the_owner_too(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {DEAF}")
    await stage.said("ready")
    async with await KeeperLink.connect(stage.runtime.keeper_socket) as link:
        stage.runtime.make("2")
        argv = [str(stage.program), "2"]
        second = int((await link.ask("launch", name="2", argv=argv, descriptors=[]))["pid"])
        # Else its words would have no reader, and be its end.
        wait_for(lambda: stage.console().count("ready") == 2, what="the second one's words")
        kill(owned.keeper_pid)
        assert alive(second)
        owned.cut()
        wait_for(lambda: not alive(second) and not alive(owned.qemu_pid), what="their end")


async def test_an_owner_that_lets_go_before_it_is_put_on_ends_it(stage: Stage) -> None:
    """Between the start of the keeper and that of QEMU: nothing is left of it."""
    held = Leash.make()
    pid = os.fork()
    if pid == 0:
        os.close(held.ours)
        os.read(held.theirs, 1)  # until the owner is gone
        owner.put_on(held.theirs, None)
        os._exit(0)
    held.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


async def test_the_keeper_tells_of_an_owner_s_death_as_asked_for(stage: Stage) -> None:
    """Whichever of the two, lifeline and leash, it sees first."""
    owned = await stage.launch(f"echo ready; {DEAF}", discard=False)
    await stage.said("ready")
    owned.cut()
    await stage.until_gone()
    assert stage.ended()["asked"] is True
    assert stage.ended()["code"] == -signal.SIGKILL


# Facts about processes


async def test_a_keeper_is_known_by_the_sandbox_that_it_names(stage: Stage) -> None:
    owned = await stage.launch(f"echo ready; {DEAF}")
    await stage.said("ready")
    (keeper,) = processes_of(stage.place.root)
    assert (keeper.kind, keeper.pid) == (ProcessKind.KEEPER, owned.keeper_pid)
    wait_for(
        lambda: {owned.keeper_pid, owned.qemu_pid} <= {*holders_of(stage.place.lock)},
        what="both to hold it",
    )
    keeper.send(signal.SIGSTOP)
    assert keeper.is_there, "it is stopped, and not gone"
    keeper.send(signal.SIGCONT)


async def test_a_signal_never_reaches_another_process_with_that_id(stage: Stage) -> None:
    from dataclasses import replace

    owned = await stage.launch(f"echo ready; {DEAF}")
    await stage.said("ready")
    (keeper,) = processes_of(stage.place.root)
    stranger = replace(keeper, started="1")
    assert not stranger.is_there
    stranger.send(signal.SIGKILL)
    assert alive(owned.keeper_pid)
    assert alive(owned.qemu_pid)


def test_nobody_holds_what_is_not_there(tmp_path: Path) -> None:
    assert holders_of(tmp_path / "lock") == []
