"""Sandboxes that are started elsewhere when their node is lost, with real machines: as an onlooker
sees it, none is ever on two nodes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from quicksand import Fleet, Restart, Sandbox
from quicksand.base.paths import Paths
from quicksand.errors import StateError
from quicksand.records.registry import Registry
from quicksand_fleet.keeping import judging
from quicksand_fleet.keeping.book import Book, Kept, Phase
from quicksand_fleet.nodes import end_fleet, make_nodes, sandboxes_of
from quicksand_fleet.over_ray.lifecycle import end_ray, start_ray

from tests.conftest import fresh_places
from tests.integration.shared.kept import Nodes, Onlooker, coordinator

pytestmark = pytest.mark.vm

TERMS = Restart(every=None, lease=6)
LONG_S = 180.0
AWAY_S = 30.0


@pytest.fixture(scope="module")
def places(prepared: Paths) -> Iterator[Paths]:
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture
async def nodes(
    places: Paths, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Nodes]:
    monkeypatch.setattr(judging, "MARGIN_S", 2.0)
    count, with_ray = request.param
    found = Nodes(places, make_nodes(places, count).nodes, monkeypatch)
    if with_ray:
        pytest.importorskip("ray")
        await asyncio.to_thread(start_ray, places)
    try:
        async with coordinator(places):
            yield found
    finally:
        if with_ray:
            await asyncio.to_thread(end_ray, places)
        await end_fleet(places, told=lambda _: None)


async def until(condition: Callable[[], object], what: str, *, seconds: float = 60.0) -> None:
    """Wait until ``condition`` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.05)


def kept(places: Paths, name: str) -> Kept:
    found = Book(places).read(name)
    assert found is not None
    return found


def is_told(places: Paths, name: str) -> bool:
    return not kept(places, name).older


def is_up(places: Paths, name: str, epoch: int) -> bool:
    now = kept(places, name)
    return now.epoch == epoch and now.phase is Phase.LEASED


async def restarted(nodes: Nodes, places: Paths, fleet: Fleet) -> tuple[Sandbox, str, str]:
    """A sandbox whose node was lost, which goes on elsewhere; that node, and its id there."""
    sandbox = Sandbox(image="debian", name="web", fleet=fleet, restart=TERMS)
    await sandbox.start()
    first, old_id = str(sandbox.host), sandbox.id
    nodes.kill(first)
    await until(lambda: is_up(places, "web", 2), "the second epoch", seconds=LONG_S)
    # This object has followed it.
    assert (await sandbox.execute("echo here")).stdout == "here\n"
    assert sandbox.host != first
    return sandbox, first, old_id


@pytest.mark.parametrize("nodes", [pytest.param((2, False), id="ssh")], indirect=True)
async def test_a_sandbox_of_a_lost_node_goes_on_elsewhere(nodes: Nodes, places: Paths) -> None:
    onlooker = Onlooker(nodes)
    with onlooker.looking():
        async with Fleet.open(wait_s=60) as fleet:
            sandbox, first, _ = await restarted(nodes, places, fleet)
            [now] = await fleet.kept()
            assert (now.host, now.epoch, now.is_coordinated) == (sandbox.host, 2, True)
            assert f"{first} was lost" in now.restarted and list(now.older_on) == [first]
            await sandbox.stop(grace=0)
    assert onlooker.looks > 10 and not onlooker.twice


@pytest.mark.soak
@pytest.mark.parametrize(
    "nodes",
    [pytest.param((2, False), id="ssh"), pytest.param((2, True), id="ray")],
    indirect=True,
)
async def test_a_node_that_comes_back_has_the_old_one_stopped(nodes: Nodes, places: Paths) -> None:
    onlooker = Onlooker(nodes)
    with onlooker.looking():
        async with Fleet.open(wait_s=60) as fleet:
            sandbox, first, old_id = await restarted(nodes, places, fleet)
            nodes.come_back(first)
            await until(lambda: not kept(places, "web").older, "the first to be told", seconds=60)
            old = Registry(nodes.by_name[first].paths(places)).find(old_id)
            assert (old.name, old.is_live) == ("web-epoch-1", False)
            with pytest.raises(StateError, match="which runs on"):
                await Sandbox.open(old_id, host=fleet.host(first)).start()
            assert Sandbox.attach("web", fleet=fleet).host == sandbox.host
            await sandbox.stop(grace=0)
            await until(lambda: Book(places).read("web") is None, "it to be forgotten")
    assert onlooker.looks > 10 and not onlooker.twice


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [pytest.param((2, False), id="ssh")], indirect=True)
async def test_what_was_not_asked_to_be_restarted_loses_nothing_by_a_node_that_is_away(
    nodes: Nodes, places: Paths
) -> None:
    async with Fleet.open(wait_s=60) as fleet:
        sandbox = Sandbox(image="debian", name="plain", fleet=fleet)
        await sandbox.start()
        sandbox.detach()
        await sandbox.execute("echo kept > /dev/shm/kept")
        name = str(sandbox.host)
        before = nodes.processes(name, served=False)
        nodes.freeze(name)
        end = time.monotonic() + AWAY_S
        await until(lambda: time.monotonic() > end, "the node to be away", seconds=2 * AWAY_S)
        nodes.thaw(name)
        assert (await sandbox.execute("cat /dev/shm/kept")).stdout == "kept\n"
        assert nodes.processes(name, served=False) == before and not await fleet.kept()
        await sandbox.trash()


@pytest.mark.soak
@pytest.mark.parametrize("nodes", [pytest.param((3, False), id="three")], indirect=True)
async def test_nodes_that_are_killed_cut_off_and_frozen_have_no_sandbox_twice(
    nodes: Nodes, places: Paths, tmp_path: Path
) -> None:
    onlooker = Onlooker(nodes)
    names = [f"web-{number}" for number in range(6)]
    written: dict[str, float] = {}

    def is_exported(name: str) -> bool:
        found = kept(places, name).exported
        return found is not None and found.at > written[name]

    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(onlooker.looking())
        fleet = await stack.enter_async_context(Fleet.open(wait_s=60))
        made = [
            Sandbox(image="debian", name=name, memory="256M", fleet=fleet, restart=TERMS)
            for name in names
        ]
        for pair in zip(made[::2], made[1::2], strict=True):
            await asyncio.gather(*(one.start() for one in pair))
        for sandbox in made:
            await sandbox.execute(f"echo {sandbox.name} > /root/name; sync")
            written[sandbox.name] = time.time()
            await sandbox.save("mine", workspace=str(tmp_path / str(sandbox.name)))
        for name in names:
            await until(functools.partial(is_exported, name), "exports", seconds=LONG_S)
        for name, lose in (
            ("node-1", nodes.kill),
            ("node-2", nodes.cut_off),
            ("node-3", nodes.freeze),
        ):
            before = {one: kept(places, one) for one in names}
            there = [one for one in names if before[one].host == name]
            assert there
            lose(name)
            for one in there:
                goal = functools.partial(is_up, places, one, before[one].epoch + 1)
                await until(goal, f"{one} elsewhere", seconds=LONG_S)
            with onlooker.pardoning() if name == "node-3" else contextlib.nullcontext():
                nodes.come_back(name)
                nodes.thaw(name)
                await until(
                    lambda: all(len(where) == 1 for where in onlooker.running().values()),
                    "the thawed ones to end",
                )
            for one in names:
                await until(functools.partial(is_told, places, one), "the node", seconds=60)
                assert kept(places, one).epoch == before[one].epoch + (one in there)
            stopped = {one.name: one.is_live for one in sandboxes_of(places, nodes.by_name[name])}
            for one in there:
                assert stopped[f"{one}-epoch-{before[one].epoch}"] is False
        for sandbox in made:
            found = await sandbox.execute("cat /root/name")
            assert found.stdout == f"{sandbox.name}\n"
        await asyncio.gather(*(sandbox.stop(grace=0) for sandbox in made))
        await until(lambda: not Book(places).read_all(), "all to be forgotten")
        await until(lambda: not any(host.reserved_bytes for host in fleet.hosts()), "all places")
    assert onlooker.looks > 100 and not onlooker.twice
