"""A sandbox that belongs to nobody: it waits in its keeper's hands for the one that becomes its
owner, and ends with the keeper, or when it has waited long enough."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand.base.errors import MachineError
from quicksand.base.files import is_locked
from quicksand.base.paths import Paths
from quicksand.base.removal import remove
from quicksand.qemu.keeper_link import KeeperLink
from quicksand.qemu.keeper_parts import owner
from quicksand.qemu.process import Leash, Offer, OwnedProcess
from quicksand.warm.spares import claiming
from quicksand.warm.spares.claiming import ask_keeper

from tests.conftest import wait_for
from tests.unit.qemu.test_keeper import DEAF, Stage, alive

pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="spares need Linux")

FOR_EVER = f"echo ready; {DEAF}"


@pytest.fixture
async def stage(places: Paths, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stage]:
    monkeypatch.setattr(claiming, "ANSWER_S", 10.0)  # a busy host holds keepers up
    stage = Stage(places)
    yield stage
    for owned in stage.owned:
        owned.cut()
        await asyncio.wait_for(owned.wait(), 60)
    await stage.until_gone()
    for root in (stage.runtime.root, stage.place.root):
        if root.exists():  # the keeper was killed, or the sandbox was not to be discarded
            remove(root)


async def waits(stage: Stage, *, seconds: float | None = None, memory: int = 0) -> OwnedProcess:
    """Launch it and give it away; what it was to this process, which has nothing of it any more."""
    owned = await stage.launch(FOR_EVER)
    await stage.said("ready")
    async with await KeeperLink.connect(stage.runtime.keeper_socket) as keeper:
        end = (owned.leash_end,)
        await keeper.ask("wait", seconds=seconds, memory=memory, pass_descriptors=end)
    owned.let_go()
    return owned


async def own(stage: Stage, before: OwnedProcess, *, discard: bool = False) -> OwnedProcess:
    """Become its owner."""
    granted: list[int] = []
    offer = Offer.make()
    try:
        pid = await asyncio.to_thread(
            ask_keeper, stage.runtime.keeper_socket, discard, offer.theirs, granted
        )
    except BaseException:
        offer.withdraw()
        raise
    theirs, ours, lock = granted
    os.close(lock)
    owned = offer.accepted(Leash(theirs, ours), keeper_pid=pid, qemu_pid=before.qemu_pid)
    stage.owned.append(owned)
    return owned


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), what="its death")


async def test_it_waits_when_its_maker_is_gone_and_ends_with_its_keeper(stage: Stage) -> None:
    made = await waits(stage)
    assert alive(made.qemu_pid)
    kill(made.keeper_pid)
    await stage.until_gone()


async def test_one_becomes_its_owner_and_no_other(stage: Stage) -> None:
    made = await waits(stage)
    tries = await asyncio.gather(*(own(stage, made) for _ in range(5)), return_exceptions=True)
    owners = [one for one in tries if isinstance(one, OwnedProcess)]
    assert len(owners) == 1
    assert {type(one) for one in tries} == {OwnedProcess, MachineError}
    assert owners[0].keeper_pid == made.keeper_pid
    assert alive(made.qemu_pid)


@pytest.mark.parametrize("keeper_lives", [True, False])
async def test_it_ends_with_its_new_owner(stage: Stage, keeper_lives: bool) -> None:
    owned = await own(stage, await waits(stage))
    if not keeper_lives:
        kill(owned.keeper_pid)
        assert alive(owned.qemu_pid)
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    await stage.until_gone()
    assert stage.place.root.exists()


@pytest.mark.parametrize("keeper_lives", [True, False])
async def test_its_new_owner_can_detach_it(stage: Stage, keeper_lives: bool) -> None:
    owned = await own(stage, await waits(stage))
    if not keeper_lives:
        kill(owned.keeper_pid)
    owned.detach()
    async with asyncio.timeout(60):
        with pytest.raises((MachineError, OSError)):
            await own(stage, owned)
    assert alive(owned.qemu_pid)
    kill(owned.qemu_pid)


async def test_it_is_discarded_if_its_owner_dies_and_says_so(stage: Stage) -> None:
    owned = await own(stage, await waits(stage), discard=True)
    owned.cut()
    await asyncio.wait_for(owned.wait(), 60)
    assert not stage.place.root.exists()
    assert not stage.runtime.root.exists()


async def test_its_owner_can_end_it_and_look_at_it(stage: Stage) -> None:
    owned = await own(stage, await waits(stage), discard=True)
    owned.kill()
    await asyncio.wait_for(owned.wait(), 60)
    assert stage.ended()["asked"] is True


async def test_a_client_that_dies_before_it_reads_the_reply_takes_it_along(stage: Stage) -> None:
    import json
    import socket

    await waits(stage)
    offer = Offer.make()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(stage.runtime.keeper_socket))
        request = json.dumps({"op": "own", "discard": False}).encode() + b"\n"
        socket.send_fds(connection, [request], offer.theirs)
    offer.withdraw()
    await stage.until_gone()


@pytest.mark.parametrize("how", ["its time is over", "the host is short of memory"])
async def test_it_ends_by_itself_and_leaves_nothing(stage: Stage, how: str) -> None:
    if how == "its time is over":
        await waits(stage, seconds=0.05)
    else:
        await waits(stage, memory=1 << 60)
    await asyncio.to_thread(
        wait_for, lambda: not stage.place.root.exists(), what="the end of its wait"
    )
    assert not stage.runtime.root.exists()


async def test_a_sandbox_with_an_owner_cannot_be_taken(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER)
    with pytest.raises(MachineError, match="does not wait"):
        await own(stage, owned)
    assert is_locked(stage.place.lock)


async def test_a_detached_sandbox_cannot_be_given_away(stage: Stage) -> None:
    owned = await stage.launch(FOR_EVER)
    read, write = os.pipe()
    owned.detach()
    async with await KeeperLink.connect(stage.runtime.keeper_socket) as keeper:
        with pytest.raises(MachineError, match="without an owner"):
            await keeper.ask("wait", seconds=1, memory=0, pass_descriptors=(write,))
    for descriptor in (read, write):
        os.close(descriptor)
    kill(owned.qemu_pid)


@pytest.fixture
def wait(tmp_path: Path) -> Iterator[owner.OwnerWait]:
    """A wait of ten minutes in the directory ``place``."""
    read, write = os.pipe()
    (tmp_path / "place").mkdir()
    yield owner.OwnerWait(write, str(tmp_path / "place"), 600.0, 0)
    for descriptor in (read, write):
        os.close(descriptor)


def test_the_wait_goes_on_while_the_host_sleeps(
    wait: owner.OwnerWait, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock that counts does; the loop only looks at it now and then."""
    assert not wait.is_over()
    later = owner.now() + 3600
    monkeypatch.setattr(owner, "now", lambda: later)
    assert wait.is_over()


def test_the_wait_ends_with_its_directory(wait: owner.OwnerWait, tmp_path: Path) -> None:
    assert not wait.is_over()
    (tmp_path / "place").rmdir()
    assert wait.is_over()
