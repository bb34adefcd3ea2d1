from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from quicksand_e2b.keys import Keys

from tests.unit.api.fakes import Api, FakeMachines, make_client, make_sandboxes


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    """A server that serves, with its clock."""
    machines, keys, told = FakeMachines(), Keys(tmp_path / "api"), list[str]()
    sandboxes = make_sandboxes(machines, tmp_path / "api", told)
    await sandboxes.load()
    client = await make_client(sandboxes, keys, told)
    clock = asyncio.create_task(sandboxes.watch())
    served = Api(client, machines, keys)
    served.told, served.sandboxes = told, sandboxes
    yield served
    clock.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await clock
    await sandboxes.finish()
    await client.close()
    assert not told, "faults of the server"
