"""Reverts of one VM that all tests of a module share, as in `tests/integration/shared`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from quicksand import Checkpoint, Sandbox
from quicksand.snapshots.in_place import BOOTED
from quicksand.snapshots.reverting import Form

from tests.integration.shared.conftest import places, vm, vm_name, vm_options

__all__ = ["IN_PLACE", "places", "vm", "vm_name", "vm_options"]

IN_PLACE = (Form.WARM, Form.FLUSHED)
"""Which of them depends on what the guest's processors did at the checkpoint."""


@pytest.fixture(autouse=True)
async def tidy(vm: Sandbox) -> AsyncIterator[None]:
    """No test leaves a checkpoint to the next one."""
    yield
    for made in vm.checkpoints():
        await vm.delete_checkpoint(made.id)


@pytest.fixture(autouse=True)
def reverts(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, patient: None
) -> Iterator[list[Checkpoint]]:
    """What the reverts of a test have returned. All of them happen in the QEMU that runs, but for
    the first one after a boot, unless the test is marked `in_any_form`; a guest that a busy host
    holds up is waited for, which otherwise goes on in another QEMU."""
    found: list[Checkpoint] = []

    def recording(original: Callable[..., Awaitable[Checkpoint]]) -> Any:
        async def revert(*args: Any, **more: Any) -> Checkpoint:
            found.append(await original(*args, **more))
            return found[-1]

        return revert

    monkeypatch.setattr(Sandbox, "revert", recording(Sandbox.revert))
    monkeypatch.setattr(Sandbox, "undo", recording(Sandbox.undo))
    yield found
    if request.node.get_closest_marker("in_any_form") is None:
        others = [at for at in found if at.revert_form not in IN_PLACE and at.revert_why != BOOTED]
        assert [at.revert_why for at in others] == []
