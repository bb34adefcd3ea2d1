"""Deleted sandboxes as the real service has them: in the trash, on the screen, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from quicksand.base.files import read_json
from quicksand.base.paths import Paths
from quicksand.life.sandbox_trash import SandboxTrash
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry

from quicksand_tui.door.engine import Engine
from quicksand_tui.door.saves_look import SavesReader
from quicksand_tui.model.shown_sandboxes import RemovedView
from quicksand_tui.verbs import saves, trashing
from quicksand_tui.verbs.call import Progress, ignore
from tests.unit.cli.run_cli import make_stopped

ENGINE = Engine(
    lambda verdicts: None,
    lambda _: None,
    learn_there=lambda *_: pytest.fail("it is here"),
)


async def delete(sandbox_id: str) -> RemovedView:
    verb = trashing.remove(stop=True, why="deleted in the app")
    return trashing.removed_view(await ENGINE.carry_out(verb, sandbox_id, ignore))


def names(places: Paths) -> list[str]:
    return [entry.name for entry in Registry(places).list()]


async def test_a_deleted_one_is_in_the_trash_and_comes_back(places: Paths) -> None:
    record = make_stopped(places, "box")
    removed = await delete(record.id)
    assert removed == RemovedView(id=record.id, name="box", in_trash=True)
    assert names(places) == []
    (view,) = SavesReader().read().trash
    assert (view.kind, view.id, view.name) == ("sandbox", record.id, "box")
    assert view.note == "deleted in the app"
    reports: list[Progress] = []
    back = await ENGINE.carry_out(trashing.bring_back(), record.id, reports.append)
    assert not back.runs
    assert names(places) == ["box"]
    assert reports[-1].sandbox_id == record.id


async def test_one_that_was_to_be_discarded_is_gone(places: Paths) -> None:
    record = make_stopped(places, "box")
    path = sandbox_dir(places, record.id).record
    path.write_text(json.dumps({**read_json(path), "discard": True}))
    assert not (await delete(record.id)).in_trash
    assert SandboxTrash(Registry(places)).list() == []


@pytest.mark.parametrize("name", ["", "other"])
async def test_the_screen_of_the_trash_brings_back_and_removes_for_good(
    places: Paths, name: str
) -> None:
    record = make_stopped(places, "box")
    await delete(record.id)
    reader = SavesReader()
    (view,) = reader.read().trash
    restored = await saves.bring_back([Path(view.key)], name=name).carry_out("")
    assert restored.names == [name or "box"]
    assert names(places) == [name or "box"]
    assert reader.read().trash == (), "it looks again when the trash has changed"
    await delete(record.id)
    (view,) = reader.read().trash
    assert await saves.purge([Path(view.key)]).carry_out("") == [name or "box"]
    assert SandboxTrash(Registry(places)).list() == []
