"""Checkpoints after reverts, reverts to other branches, undo and undo again, with some deleted in
between: each state is told by its memory, its disk and its processes, and each checkpoint is
compared with all of the guest's memory as it is taken (comparing.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.base.paths import Paths
from quicksand.records.layout import sandbox_dir
from quicksand.snapshots import comparing
from quicksand.snapshots.history import AUTO_KEPT, History

from tests.integration.snapshots.files import check_files, check_litter
from tests.integration.snapshots.model import Model

pytestmark = [pytest.mark.vm, pytest.mark.timeout(600)]

SEED = 27


@pytest.fixture(scope="module", autouse=True)
def compared() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(comparing.VARIABLE, "on")
        yield


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.soak)])
def vm_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Little memory, since all of it is compared each time."""
    return {"cpus": request.param, "memory": "192M"}


@pytest.fixture
async def model(vm: Sandbox, places: Paths) -> AsyncIterator[Model]:
    model = Model(vm, SEED)
    await model.change_all()
    yield model
    place = sandbox_dir(places, vm.id)
    history = History(place)
    for node in history.nodes():
        check_files(place, node)
    for made in vm.checkpoints():
        await vm.delete_checkpoint(made.id)
    check_litter(place)
    await model.check()


async def test_every_state_of_a_tree_is_what_it_was(vm: Sandbox, model: Model) -> None:
    await model.change_memory()
    root = await model.checkpoint()
    await model.change_disk()
    left = await model.checkpoint()
    await model.revert(root.id)
    await model.check()
    await model.change_process()
    right = await model.checkpoint()  # after a revert: it has what was written since
    assert right.parent == root.id
    await model.change_memory()
    for goal in (right, root, left):  # back, one before, and to the other branch
        await model.revert(goal.id)
        await model.check()
    for _ in range(2):  # to and fro: what an undo leaves is kept, too
        await model.undo()
        await model.check()
        await model.change_memory()
    await model.delete(root.id)
    await model.revert(left.id)
    await model.check()
    await model.delete(left.id)  # what the present stands on
    await model.check()
    await model.change_disk()
    last = await model.checkpoint()
    await model.revert(right.id, keep_now=False)
    await model.check()
    for _ in range(AUTO_KEPT - 1):
        await model.revert(last.id)
    await model.check()
    assert sum(made.auto for made in vm.checkpoints()) == AUTO_KEPT


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_five_hundred_steps_in_any_order(model: Model) -> None:
    await model.walk(500)
