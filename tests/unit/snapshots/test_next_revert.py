"""What is made ready in the background, and what gives way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import MachineError
from quicksand.base.paths import Paths
from quicksand.qemu.features import FEATURES
from quicksand.records.config import Accelerator
from quicksand.records.registry import Registry
from quicksand.snapshots import next_revert, rehearsal, standby
from quicksand.snapshots.next_revert import NextRevert

NODE: Any = SimpleNamespace(id="c0ffee001122", tag="clean", owner="box")


def record(*extra: str) -> Any:
    config = SimpleNamespace(memory_bytes=1, extra_qemu_args=extra)
    return SimpleNamespace(id="box", config=config)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happened to what was made ready."""
    happened: list[str] = []

    async def make_ready(_registry: object, _record: object, node_id: str) -> None:
        happened.append(f"begin {node_id}")
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            happened.append("undo")
            raise
        happened.append("ready")

    monkeypatch.setattr(standby, "make_ready", make_ready)
    monkeypatch.setattr(next_revert, "check_memory", lambda _: None)
    monkeypatch.delenv(next_revert.VARIABLE, raising=False)
    return happened


def expect(after: float = 0.0, data: Path = Path("/nowhere")) -> NextRevert:
    found = NextRevert()
    places = Paths(runtime=data, data=data, cache=data)
    found.expect(Registry(places), record(), NODE, after=after)
    return found


async def until_begun(made: list[str]) -> None:
    async with asyncio.timeout(20):
        while not made:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("goal", ["c0ffee001122", "clean"])
async def test_the_revert_that_it_is_for_waits_for_it(made: list[str], goal: str) -> None:
    found = expect()
    await until_begun(made)
    await found.settle(goal)
    assert made == ["begin c0ffee001122", "ready"]


async def test_why_nothing_could_be_made_ready_is_noted(
    made: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def make_ready(*_: object) -> None:
        raise MachineError("QEMU cannot be started")

    monkeypatch.setattr(standby, "make_ready", make_ready)
    log = tmp_path / "sandboxes/box/engine.log"
    log.parent.mkdir(parents=True)
    found = expect(data=tmp_path)
    assert found._task is not None
    await found._task
    assert log.read_text().endswith(
        "could not prepare the revert to 'clean': MachineError: QEMU cannot be started\n"
    )


@pytest.mark.parametrize("goal", [None, "other"])
async def test_it_gives_way_to_anything_else(made: list[str], goal: str | None) -> None:
    found = expect()
    await until_begun(made)
    await found.settle(goal)
    assert made == ["begin c0ffee001122", "undo"]


async def test_what_has_not_begun_does_not(made: list[str]) -> None:
    await expect(after=3600).settle("clean")
    assert made == []


def test_loops_may_come_and_go(made: list[str]) -> None:
    """As of a script that has an `asyncio.run` for each step."""

    async def begin() -> NextRevert:
        found = expect()
        await until_begun(made)
        return found

    found = asyncio.run(begin())
    assert made == ["begin c0ffee001122", "undo"]
    asyncio.run(found.settle("clean"))


def test_what_could_be_heard_or_need_not_be_translated_is_not_rehearsed() -> None:
    emulated: Any = SimpleNamespace(accel=Accelerator.TCG)
    real: Any = SimpleNamespace(accel=Accelerator.KVM)
    foreign: Any = SimpleNamespace(owner="another")
    assert rehearsal.is_worth_it(record(), NODE, emulated, FEATURES)
    assert not rehearsal.is_worth_it(record(), NODE, real, FEATURES)
    assert not rehearsal.is_worth_it(record(), foreign, emulated, FEATURES)
    assert not rehearsal.is_worth_it(record("-nic", "user"), NODE, emulated, FEATURES)
    silent = replace(FEATURES, holds_packets=False)
    assert not rehearsal.is_worth_it(record(), NODE, emulated, silent)
