"""One VM for all tests of a module, since a boot takes seconds; tests attach to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths

from tests.conftest import fresh_places


@pytest.fixture(scope="module", autouse=True)
def places(prepared: Paths) -> Iterator[Paths]:
    """Places shared by a module's tests."""
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture(scope="module")
def vm_options() -> dict[str, Any]:
    """How a module's VM differs from the usual one."""
    return {}


@pytest.fixture(scope="module")
def vm_name(places: Paths, vm_options: dict[str, Any]) -> Iterator[str]:
    """A running, detached sandbox; the tests must leave it usable."""

    async def start() -> None:
        sandbox = Sandbox(image="debian", name="shared", ephemeral=True, **vm_options)
        await sandbox.start()
        sandbox.detach()
        sandbox.close()

    async def stop() -> None:
        await Sandbox.attach("shared").kill()

    asyncio.run(start())
    yield "shared"
    asyncio.run(stop())


@pytest.fixture
async def vm(vm_name: str) -> AsyncIterator[Sandbox]:
    """The module's sandbox, attached anew for each test."""
    sandbox = Sandbox.attach(vm_name)
    yield sandbox
    sandbox.close()
