"""The sandbox that most of these tests are about."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths

# So that a failure there says what differs, too.
pytest.register_assert_rewrite("tests.integration.snapshots.files")


@pytest.fixture
async def vm(places: Paths) -> AsyncIterator[Sandbox]:
    async with Sandbox(image="debian", name="box") as sandbox:
        yield sandbox
