"""Saves and the trash of another machine as the app's service knows them: over a connection to a
local node, which is a machine with a data directory of its own, and to a machine that lies."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from quicksand.base.paths import Paths
from quicksand.records.fleet_files import fleet_file
from quicksand.records.registry import Registry
from quicksand.remote.peer_link import Request
from quicksand.saves.save_manifest import Base
from quicksand.saves.store import SaveStore
from quicksand_fleet.node import NodeDestination
from quicksand_fleet.nodes import end_fleet, make_nodes

from quicksand_tui.door import far_host
from quicksand_tui.door.far_hosts import FarSaves
from quicksand_tui.door.service import EngineService
from quicksand_tui.forms.save_forms import restore
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.shown_sandboxes import at_host
from quicksand_tui.model.shown_saves import SavesView
from quicksand_tui.model.specs import Told
from quicksand_tui.model.world import MachineState
from quicksand_tui.verbs import saves, trashing, verdicts
from quicksand_tui.verbs.call import Call, ignore
from tests.unit.app.fakes import KEYMAP, until
from tests.unit.app.test_far_hosts import Liar, liar, met
from tests.unit.cli.run_cli import make_stopped
from tests.unit.saves.making import make_save

__all__ = ["liar"]

NODE = "node-1"


@pytest.fixture
async def node(places: Paths, base: Base, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Paths]:
    """The directories of a node, which has the image that is here."""
    monkeypatch.setattr(far_host, "PAUSES_S", (0.05, 0.2))
    record = make_nodes(places, 1)
    yield record.nodes[0].paths(places)
    if fleet_file(places).exists():
        await end_fleet(places, told=lambda _: None)


@pytest.fixture
async def service(node: Paths) -> AsyncIterator[EngineService]:
    found = EngineService()
    found.meet({})
    yield found
    await asyncio.to_thread(found.close)


async def saves_of(service: EngineService, *, there: bool = True) -> SavesView:
    await asyncio.to_thread(service.read)
    return await asyncio.to_thread(service.read_saves, there=there)


async def seen(
    service: EngineService, wanted: Callable[[SavesView], bool], *, fresh: bool = False
) -> SavesView:
    """What the node has told, once it is as wanted."""
    async with asyncio.timeout(60):
        while True:
            view = (await saves_of(service)).of(NODE)
            if view.loaded and wanted(view):
                return view
            await asyncio.sleep(0.02)


async def done(service: EngineService, verb: Call[Any]) -> str:
    """Carries a verb out on the node; returns what is told."""
    result = await service.carry_out(verb, at_host("job:1", verb.host), ignore)
    told = verb.tell("", result, KEYMAP)
    assert isinstance(told, Told)
    return told.summary


def names(view: SavesView) -> list[str]:
    return [save.name for save in view.saves]


def serving(node: Paths) -> list[int]:
    """The processes that answer for the node."""
    wanted = f"QUICKSAND_DATA_DIR={node.data}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                environment = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and wanted in environment:
                found.append(int(entry.name))
    return found


async def test_nothing_is_asked_before_saves_are_shown_and_then_changes_come_by_themselves(
    service: EngineService, node: Paths, base: Base
) -> None:
    make_save(SaveStore(node.saves), "dev", b"1", base=base, note="gcc")
    async with asyncio.timeout(60):
        while (await asyncio.to_thread(service.read)).machines[0].state is not MachineState.THERE:
            await asyncio.sleep(0.02)
    view = await saves_of(service, there=False)
    assert not view.of(NODE).loaded and not view.of(NODE).saves
    found = await seen(service, lambda view: bool(view.saves))
    (dev,) = found.saves
    assert (dev.name, dev.host, dev.note, dev.place, dev.path) == (
        "dev",
        NODE,
        "gcc",
        "user",
        str(node.saves / "dev"),
    )
    together = await saves_of(service)
    assert "dev@node-1" in names(together)
    assert await saves_of(service) is together, "nothing has changed"

    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    def told_there() -> None:
        loop.call_soon_threadsafe(told.set)

    service.when_saves_told(told_there)
    make_save(SaveStore(node.saves), "dev2", b"2", base=base)
    async with asyncio.timeout(60):
        while names((await saves_of(service)).of(NODE)) != ["dev", "dev2"]:
            await told.wait()
            told.clear()

    # Nobody looks: what happens now is not told, and read when somebody does.
    told.clear()
    await saves_of(service, there=False)
    make_save(SaveStore(node.saves), "dev3", b"3", base=base)
    assert names((await saves_of(service, there=False)).of(NODE)) == ["dev", "dev2"]
    await seen(service, lambda view: len(view.saves) == 3)


async def test_saves_there_are_verified_removed_and_brought_back(
    service: EngineService, node: Paths, base: Base
) -> None:
    store = SaveStore(node.saves)
    made = [make_save(store, name, os.urandom(65536), base=base) for name in ("-odd", "b")]
    keys = [str(save.root) for save in made]
    await seen(service, lambda view: len(view.saves) == 2)
    told = await done(service, verdicts.verify(keys[:1], shown=["-odd"], host=NODE))
    assert "fine by a quick check" in told
    (layer, *_) = sorted((made[1].root / "overlays").iterdir())
    layer.write_bytes(layer.read_bytes()[:-1])
    with pytest.raises(OperationError) as error:
        await done(service, verdicts.verify(keys, deep=True, shown=["-odd", "b"], host=NODE))
    assert error.value.failure.title == "1 of 2 saves are not whole"
    view = await seen(service, lambda view: any(save.verdict for save in view.saves))
    verdict = {save.name: save.verdict for save in view.saves}
    assert verdict["-odd"] is not None and verdict["-odd"].deep and not verdict["-odd"].problems
    assert verdict["b"] is not None and verdict["b"].problems

    told = await done(service, saves.discard(keys, shown=["-odd", "b"], host=NODE))
    assert told == "2 saves are in the trash for a week: T shows it"
    view = await seen(service, lambda view: not view.saves and len(view.trash) == 2)
    assert not store.list()
    trash = {found.name: found for found in view.trash}
    assert await done(service, restore(trash["-odd"])) == "-odd is restored"
    assert await done(service, restore(trash["b"], name="c")) == "c is restored"
    view = await seen(service, lambda view: not view.trash)
    assert names(view) == ["-odd", "c"]
    told = await done(service, saves.discard(keys[:1], now=True, shown=["-odd"], host=NODE))
    assert told == "-odd is deleted for good"
    with pytest.raises(OperationError) as error:
        await done(service, saves.discard(keys[:1], shown=["-odd"], host=NODE))
    assert keys[0] in error.value.failure.message


async def test_sandboxes_in_the_trash_there_come_back_or_go_for_good(
    service: EngineService, node: Paths
) -> None:
    kept, gone = make_stopped(node, "kept"), make_stopped(node, "gone")
    async with asyncio.timeout(60):
        while len((await asyncio.to_thread(service.read)).sandboxes) < 2:
            await asyncio.sleep(0.02)
    for record in (kept, gone):
        await service.carry_out(trashing.remove(stop=True), at_host(record.id, NODE), ignore)
    view = await seen(service, lambda view: len(view.trash) == 2)
    trash = {found.name: found for found in view.trash}
    assert trash["kept"].kind == "sandbox" and trash["kept"].id == kept.id
    assert await done(service, restore(trash["kept"])) == "kept is restored"
    assert [entry.name for entry in Registry(node).list()] == ["kept"]
    verb = saves.purge([Path(trash["gone"].path)], shown=[gone.id], host=NODE)
    assert await done(service, verb) == "gone is deleted for good"
    assert not (await seen(service, lambda view: not view.trash)).trash


async def test_a_machine_that_is_away_keeps_its_list_and_comes_again(
    service: EngineService, node: Paths, base: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_save(SaveStore(node.saves), "dev", b"1", base=base)
    await seen(service, lambda view: bool(view.saves))

    async def nobody(*_: object) -> NoReturn:
        raise FileNotFoundError("no way")

    with monkeypatch.context() as patch:
        patch.setattr(NodeDestination, "start", nobody)
        (pid,) = serving(node)
        os.kill(pid, signal.SIGKILL)
        hosts = service._hosts
        assert hosts is not None
        async with asyncio.timeout(60):
            while hosts._hosts[NODE].view.state is not MachineState.AWAY:
                await asyncio.sleep(0.02)
        view = (await asyncio.to_thread(service.read_saves, there=True)).of(NODE)
        assert names(view) == ["dev"] and view.saves[0].away
        with pytest.raises(OperationError, match=f"{NODE} is away"):
            await done(service, saves.discard([view.saves[0].path], shown=["dev"], host=NODE))
        assert (node.saves / "dev").exists()
    make_save(SaveStore(node.saves), "dev2", b"2", base=base)
    await seen(service, lambda view: [save.away for save in view.saves] == [False, False])


# A machine that lies


async def test_a_machine_that_tells_nonsense_of_its_saves_goes_on_otherwise(
    liar: tuple[Liar, far_host.FarHost], monkeypatch: pytest.MonkeyPatch
) -> None:
    lies, host = liar
    usual, told = lies._answer, [b'{"saves":{"--now":{}}}\n']
    asked: list[str] = []

    async def answer(request: Request) -> None:
        if request.method != "watch_saves":
            await usual(request)
            return
        asked.append(request.method)
        request.answer()
        await request.channel.send(1, told[0])
        while (await request.channel.event())["event"] != "leave":
            pass

    monkeypatch.setattr(lies, "_answer", answer)
    await met(lies, host)
    tasks: set[asyncio.Task[None]] = set()
    found = FarSaves(host, changed=lambda: None, tasks=tasks)
    assert not found.view.loaded
    # It has not said that it can tell its saves.
    found.want(fresh=False)
    await until(lambda: "install the same version" in found.view.error)
    assert not asked
    monkeypatch.setattr(far_host.FarHost, "can", lambda *_: True)
    found.want(fresh=True)
    await until(lambda: "makes no sense" in found.view.error)
    assert host.view.state is MachineState.THERE and host.sandboxes
    told[0] = json.dumps({"saves": {"/s/dev": {"name": "dev"}}}).encode() + b"\n"
    found.want(fresh=True)
    await until(lambda: [save.name for save in found.view.saves] == ["dev"])
    assert len(asked) == 2 and not found.view.error
    found.leave()
    await until(lambda: not tasks)
    assert found.view.saves[0].key == "box:/s/dev"
