"""Spares on real VMs: made where a test asks for one, and ended with the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand import Sandbox, SandboxConfig
from quicksand.base.paths import Paths
from quicksand.base.settings import SPARES
from quicksand.records.registry import Registry
from quicksand.warm.spares import claiming
from quicksand.warm.spares.spare import Spare, list_spares
from quicksand.warm.spares.spare_making import make_spare
from quicksand.warm.spares.stock import record_for

from tests.conftest import wait_for

Make = Callable[..., Awaitable[Spare]]

PATIENT = """
from quicksand.qemu import guest_resume
from quicksand.warm.spares import claiming, handover
claiming.ANSWER_S = handover.CONNECT_S = guest_resume.FIRST_HELLO_S = 10.0
"""
"""The fixture ``patient`` for a program of its own, which begins with this."""


@pytest.fixture
async def make(
    places: Paths, patient: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Make]:
    """Makes spares of the usual machine, or one with other options; none is left in the end. A
    start makes none in the background."""
    monkeypatch.setenv(SPARES.variable, "use")
    registry = Registry(places)

    async def one(seconds: float | None = 600.0, **options: Any) -> Spare:
        config = SandboxConfig.parse({"image": "debian", **options})
        return await make_spare(registry, record_for(config), seconds=seconds)

    yield one
    for spare in list_spares(places):
        claiming.end(registry, spare)


async def started(**options: Any) -> Sandbox:
    sandbox = Sandbox(image="debian", **options)
    await sandbox.start()
    return sandbox


def mode_of(sandbox: Sandbox) -> str:
    assert sandbox.boot_timing is not None
    return sandbox.boot_timing.mode


async def until_nothing_is_left(places: Paths) -> None:
    """Wait until neither spares nor what they consist of is there."""

    def left() -> list[Path]:
        found = [*places.sandboxes.iterdir(), *places.runtime.glob("*")]
        return [path for path in found if not path.name.startswith(".")]

    await asyncio.to_thread(wait_for, lambda: not left(), what="all of it to go")
