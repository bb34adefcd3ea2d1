"""Saves and the trash of another machine: the same methods as here, each called once."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import RemoteProtocolError, SaveNotFoundError
from quicksand.base.paths import Paths
from quicksand.hosted.codec import OF_THINGS
from quicksand.hosted.far_things import FarThings
from quicksand.life.kept_things import KeptThings
from quicksand.saves.save_manifest import Base
from quicksand.saves.store import SaveStore

from tests.each import each
from tests.unit.hosted.test_holding import Line, line, machine
from tests.unit.saves.making import make_save

__all__ = ["line", "machine"]


@pytest.fixture
def things(line: Line, monkeypatch: pytest.MonkeyPatch) -> FarThings:
    async def ended() -> None: ...

    monkeypatch.setattr(line, "ended", ended, raising=False)
    host: Any = SimpleNamespace(sharing=lambda: line, grace=30.0, name="box")
    return FarThings(host)


def methods() -> list[str]:
    return [
        name
        for name, found in vars(KeptThings).items()
        if inspect.iscoroutinefunction(found) and not name.startswith("_")
    ]


@each("name", methods())
def test_each_method_is_called_there(name: str) -> None:
    assert name in OF_THINGS
    assert name in vars(FarThings)


async def test_saves_there_have_the_fates_of_saves_here(
    things: FarThings, places: Paths, base: Base
) -> None:
    store = SaveStore(places.saves)
    dev = make_save(store, "dev", b"1", base=base)
    stages: list[tuple[str, int, int]] = []
    found = await things.verify_saves(
        places=[dev.root], deep=True, progress=lambda *one: stages.append(one)
    )
    (verdict,) = found.verdicts
    assert verdict.is_whole and verdict.save == dev and found.size > 0
    assert stages[0][0] == "looking"
    fates: list[Any] = []
    removed = await things.remove_saves(["dev", "nope"], each=fates.append)
    assert fates == list(removed.each)
    assert (fates[0].name, fates[0].removed is None) == ("dev", False)
    assert isinstance(fates[1], SaveNotFoundError) and "nope" in str(fates[1])
    assert (await things.find_in_trash("dev")).saves == [store.trash()[0].id]
    back = await things.restore_things(["dev"], new_name="dev2")
    assert (back.names, back.failed) == (["dev2"], [])
    with pytest.raises(SaveNotFoundError):
        await things.rebase_save("dev")


async def test_a_call_whose_connection_breaks_is_made_once(
    things: FarThings, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    asked: list[Sequence[Path]] = []

    async def empty_trash(_: KeptThings, places: Sequence[Path]) -> Sequence[str]:
        asked.append(places)
        begun.set()
        await go_on.wait()
        return ["gone"]

    monkeypatch.setattr(KeptThings, "empty_trash", empty_trash)
    emptying = asyncio.create_task(things.empty_trash([Path("/trash/x")]))
    await begun.wait()
    line.cut()
    go_on.set()
    assert await emptying == ["gone"]
    assert asked == [[Path("/trash/x")]]


async def test_an_answer_of_another_type_is_refused(
    things: FarThings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def find_in_trash(_: KeptThings, name: str) -> Any:
        return [name]

    monkeypatch.setattr(KeptThings, "find_in_trash", find_in_trash)
    with pytest.raises(RemoteProtocolError, match="makes no sense"):
        await things.find_in_trash("x")
