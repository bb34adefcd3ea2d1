"""A machine that has started is ended if its start is cancelled behind that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.boot_timing import Stopwatch
from quicksand.base.paths import Paths
from quicksand.qemu.planning import Found
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.warm import starting

from tests.conftest import blank_record


class Running:
    """A machine that runs."""

    run = SimpleNamespace(qemu_pid=1)
    ended = False

    async def end(self) -> None:
        await asyncio.sleep(0)
        self.ended = True


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Running:
    """What a start returns that finds no template."""
    running = Running()

    async def start(*_: object) -> Any:
        return running

    monkeypatch.setattr(starting, "_start", start)
    monkeypatch.setattr(
        starting, "Templates", lambda *_: SimpleNamespace(find=lambda: None, refusal="")
    )
    return running


def begin(places: Paths) -> asyncio.Task[Any]:
    record = blank_record(SandboxConfig.parse({"image": "debian"}))
    found = Found(watch=Stopwatch(None), parts=None)  # type: ignore[arg-type]
    return asyncio.create_task(starting.boot(Registry(places), record, -1, warm=True, found=found))


async def test_a_cancellation_while_a_template_is_ordered_ends_the_machine(
    places: Paths, machine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered = asyncio.Event()

    async def order(*_: object, **__: object) -> None:
        ordered.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(starting, "make_in_background", order)
    boot = begin(places)
    await ordered.wait()
    boot.cancel()
    with pytest.raises(asyncio.CancelledError):
        await boot
    assert machine.ended


async def test_a_template_that_cannot_be_ordered_does_not_keep_a_machine_from_its_start(
    places: Paths, machine: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def order(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(starting, "make_in_background", order)
    assert await begin(places) is machine
    assert not machine.ended
