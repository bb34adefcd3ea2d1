"""Reverts of one VM that all tests of a module share, as in `tests/integration/shared`."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from quicksand import Sandbox

from tests.integration.shared.conftest import places, vm, vm_name, vm_options

__all__ = ["places", "vm", "vm_name", "vm_options"]


@pytest.fixture(autouse=True)
async def tidy(vm: Sandbox) -> AsyncIterator[None]:
    """No test leaves a checkpoint to the next one."""
    yield
    for made in vm.checkpoints():
        await vm.delete_checkpoint(made.id)
