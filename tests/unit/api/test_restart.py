"""A server that was killed at any step: the next one finishes or undoes what it began. And one that
cannot do what it has to tries again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from quicksand import MachineError
from quicksand_e2b import sandboxes as module
from quicksand_e2b.asked import Asked
from quicksand_e2b.making import Making
from quicksand_e2b.processes import Order
from quicksand_e2b.records import SandboxRecord, State
from quicksand_e2b.sandboxes import Sandboxes

from tests.unit.api.fakes import USUAL, FakeMachines, make_sandboxes, until


@pytest.fixture
def machines() -> FakeMachines:
    return FakeMachines()


async def _server(machines: FakeMachines, place: Path) -> Sandboxes:
    found = make_sandboxes(machines, place, [])
    await found.load()
    return found


async def _one(machines: FakeMachines, place: Path, **asked: object) -> Sandboxes:
    """A server with one sandbox."""
    sandboxes = await _server(machines, place)
    wanted = replace(Asked(template="base", timeout_s=300), **asked)  # type: ignore[arg-type]
    await Making(sandboxes, USUAL).create("me", wanted)
    return sandboxes


async def _set(sandboxes: Sandboxes, state: State) -> None:
    """As a server leaves it that is killed in this state."""
    (live,) = sandboxes
    await sandboxes.records.save(live.record.with_state(state))


async def test_what_runs_goes_on_with_its_time_and_its_secrets(
    machines: FakeMachines, tmp_path: Path
) -> None:
    (before,) = await _one(machines, tmp_path)

    (after,) = await _server(machines, tmp_path)

    assert after.record == before.record
    assert after.is_up()


@pytest.mark.parametrize("state", [State.MAKING, State.ENDING])
@pytest.mark.parametrize("exists", [True, False])
async def test_what_was_half_made_or_half_ended_is_removed(
    machines: FakeMachines, tmp_path: Path, state: State, exists: bool
) -> None:
    await _set(await _one(machines, tmp_path), state)
    if not exists:
        machines.found.clear()

    after = await _server(machines, tmp_path)

    assert not list(after)
    assert not list(after.records.sandboxes())
    assert machines.found == {}


@pytest.mark.parametrize(
    ("is_live", "has_checkpoint", "wanted"),
    [
        (True, False, (State.RUNNING, True)),
        (True, True, (State.RUNNING, True)),
        (False, True, (State.PAUSED, True)),
        (False, False, (State.PAUSED, False)),
    ],
)
async def test_a_pause_is_finished_or_has_not_been(
    machines: FakeMachines,
    tmp_path: Path,
    is_live: bool,
    has_checkpoint: bool,
    wanted: tuple[State, bool],
) -> None:
    await _set(await _one(machines, tmp_path), State.PAUSING)
    (machine,) = machines.found.values()
    machine.is_live = is_live
    machine.checkpoints = {"api-pause"} if has_checkpoint else set()

    (after,) = await _server(machines, tmp_path)

    assert (after.record.state, after.record.paused_memory) == wanted


async def test_one_that_was_just_resumed_has_time_again(
    machines: FakeMachines, tmp_path: Path
) -> None:
    await _set(await _one(machines, tmp_path, timeout_s=0), State.PAUSED)

    (after,) = await _server(machines, tmp_path)

    assert after.record.state is State.RUNNING
    assert after.record.ends > after.record.created + 100


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_command_is_found_again_with_its_output_and_its_end(
    machines: FakeMachines, tmp_path: Path, is_known: bool
) -> None:
    earlier = await _one(machines, tmp_path)
    (before,) = earlier
    config: dict[str, object] = {
        "cmd": "/bin/bash",
        "args": ["-l", "-c", "cat"],
        "envs": {},
        "cwd": None,
    }
    order = Order(
        config=config,
        user="user",
        env={},
        tag="mine",
        has_stdin=True,
        terminal=None,
        timeout_s=None,
    )
    process, _ = await before.guest().processes.start(order)
    await earlier.finish()
    (machine,) = machines.found.values()
    if not is_known:  # its end is no longer remembered
        machine.guest.commands.clear()

    sandboxes = await _server(machines, tmp_path)
    (after,) = sandboxes
    found = after.guest().processes
    if not is_known:
        assert await found.list() == []
        await sandboxes.finish()
        return
    assert await found.list() == [process.facts]
    again, listener = await found.listen(None, "mine")
    await again.write(b"typed", to_terminal=False)
    assert await listener.next() == {"data": {"stdout": "dHlwZWQ="}}
    await again.close_stdin()
    end = await listener.next()
    assert end is not None
    assert end["end"]["exitCode"] == 0
    await sandboxes.finish()


async def test_records_of_sandboxes_that_are_gone_are_forgotten(
    machines: FakeMachines, tmp_path: Path
) -> None:
    await _one(machines, tmp_path)
    machines.found.clear()

    assert list(await _server(machines, tmp_path)) == []


async def test_half_a_snapshot_is_undone_and_a_whole_one_keeps_its_sandbox(
    machines: FakeMachines, tmp_path: Path
) -> None:
    sandboxes = await _one(machines, tmp_path)
    (live,) = sandboxes
    making = Making(sandboxes, USUAL)
    whole = await making.snapshot(live, "", memory=True)
    half = await making.snapshot(live, "", memory=True)
    await sandboxes.records.save(replace(half, is_whole=False))
    await _set(sandboxes, State.ENDING)

    after = await _server(machines, tmp_path)

    assert list(after.snapshots.values()) == [whole]
    (held,) = after
    assert held.record.state is State.HELD
    (machine,) = machines.found.values()
    assert machine.checkpoints == {whole.tag}
    assert not machine.is_live
    await after.forget_snapshot(whole)
    assert machines.found == {}


async def test_a_sandbox_whose_time_ran_out_meanwhile_is_ended_at_the_next_start(
    machines: FakeMachines, tmp_path: Path
) -> None:
    await _one(machines, tmp_path, timeout_s=0)
    after = await _server(machines, tmp_path)
    clock = asyncio.create_task(after.watch())
    await until(lambda: machines.found == {})
    clock.cancel()
    await asyncio.wait((clock,))
    await after.finish()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    monkeypatch.setattr(module, "LOOK_S", 0.01)


@pytest.mark.usefixtures("soon")
async def test_what_cannot_be_ended_when_its_time_is_up_is_tried_again(
    machines: FakeMachines, tmp_path: Path
) -> None:
    told: list[str] = []
    sandboxes = make_sandboxes(machines, tmp_path, told)
    await sandboxes.load()
    await Making(sandboxes, USUAL).create("me", Asked(template="base", timeout_s=0))
    machines.stays = MachineError("QEMU does not end")
    clock = asyncio.create_task(sandboxes.watch())
    await until(lambda: told)
    assert "does not end" in told[0]
    assert machines.found
    machines.stays = None
    await until(lambda: not machines.found and not list(sandboxes))
    clock.cancel()
    await asyncio.wait((clock,))
    await sandboxes.finish()


@pytest.mark.usefixtures("soon")
async def test_what_cannot_be_made_nor_removed_is_removed_later(
    machines: FakeMachines, tmp_path: Path
) -> None:
    told: list[str] = []
    sandboxes = make_sandboxes(machines, tmp_path, told)
    await sandboxes.load()
    clock = asyncio.create_task(sandboxes.watch())
    machines.fails = MachineError("no memory")
    machines.stays = MachineError("QEMU does not end")
    with pytest.raises(MachineError, match="no memory"):
        await Making(sandboxes, USUAL).create("me", Asked(template="base", timeout_s=300))
    assert "could not be made" in told[0]
    machines.stays = None
    await until(lambda: not list(sandboxes))
    assert list(sandboxes.records.sandboxes()) == []
    clock.cancel()
    await asyncio.wait((clock,))
    await sandboxes.finish()


async def test_a_pause_that_fails_after_the_machine_has_ended_is_one(
    machines: FakeMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = await _one(machines, tmp_path)
    (live,) = sandboxes

    async def pause(record: SandboxRecord, *, memory: bool) -> None:
        machines.found[record.name].is_live = False
        raise MachineError("its end was not seen")

    monkeypatch.setattr(machines, "pause", pause)
    with pytest.raises(MachineError, match="not seen"):
        await sandboxes.pause(live, memory=True)
    assert (live.record.state, live.record.paused_memory) == (State.PAUSED, False)
