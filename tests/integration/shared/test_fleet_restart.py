"""Sandboxes that are started elsewhere when their node is lost, with real machines: as an onlooker
sees it, none is ever on two nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from quicksand import Fleet, Restart, Sandbox
from quicksand.base.paths import Paths
from quicksand.errors import QuicksandError, StateError
from quicksand.fleet.keeping import judging
from quicksand.fleet.keeping.book import Book, Kept, Phase
from quicksand.fleet.nodes import end_fleet, make_nodes, sandboxes_of
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Status

from tests.integration.shared.kept import Nodes, Onlooker, coordinator
from tests.conftest import fresh_places

pytestmark = pytest.mark.vm

TERMS = Restart(every=None, lease=8)
LONG_S = 180.0


@pytest.fixture(scope="module")
def places(prepared: Paths) -> Iterator[Paths]:
    with fresh_places(prepared) as found:
        yield found


@pytest.fixture
async def nodes(
    places: Paths, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Nodes]:
    monkeypatch.setattr(judging, "MARGIN_S", 3.0)
    found = Nodes(places, make_nodes(places, request.param).nodes, monkeypatch)
    async with coordinator(places):
        yield found
    await end_fleet(places, told=lambda _: None)


async def until(condition: Callable[[], object], what: str, *, seconds: float = 30.0) -> None:
    """Wait until ``condition`` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        await asyncio.sleep(0.05)


def kept(places: Paths, name: str) -> Kept:
    found = Book(places).read(name)
    assert found is not None
    return found


def is_up(places: Paths, name: str, epoch: int) -> bool:
    now = kept(places, name)
    return now.epoch == epoch and now.phase is Phase.LEASED


@pytest.mark.parametrize("nodes", [2], indirect=True)
async def test_a_sandbox_of_a_lost_node_goes_on_elsewhere_and_the_old_one_stays_stopped(
    nodes: Nodes, places: Paths
) -> None:
    onlooker = Onlooker(nodes)
    with onlooker.looking():
        async with Fleet.open(wait_s=60) as fleet:
            sandbox = Sandbox(image="debian", name="web", fleet=fleet, restart=TERMS)
            await sandbox.start()
            first, old_id = str(sandbox.host), sandbox.id
            await sandbox.execute("echo kept > /root/kept; sync")
            exported = kept(places, "web").exported
            await sandbox.save("mine")
            await until(
                lambda: kept(places, "web").exported != exported, "the export", seconds=LONG_S
            )
            nodes.kill(first)
            await until(lambda: is_up(places, "web", 2), "the second epoch", seconds=LONG_S)
            # This object has followed it.
            assert (await sandbox.execute("cat /root/kept")).stdout == "kept\n"
            assert sandbox.host != first
            nodes.come_back(first)
            await until(lambda: not kept(places, "web").older, "the first to be told", seconds=60)
            old = Registry(nodes.by_name[first].paths(places)).find(old_id)
            assert (old.name, old.is_live) == ("web-epoch-1", False)
            with pytest.raises(StateError, match="goes on at"):
                await Sandbox.open(old_id, host=fleet.host(first)).start()
            assert Sandbox.attach("web", fleet=fleet).host == sandbox.host
            await sandbox.stop()
            await until(lambda: Book(places).read("web") is None, "it to be forgotten")
    assert onlooker.looks > 10 and not onlooker.twice
