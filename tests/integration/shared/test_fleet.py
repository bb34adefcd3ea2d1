"""A fleet of two nodes on this machine, with real machines on them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from quicksand import BatchResult, Fleet, Sandbox
from quicksand.base.paths import Paths
from quicksand.errors import FleetFullError, SandboxNotFoundError, StateError
from quicksand.records.registry import Registry
from quicksand_fleet.interface import FleetEventKind
from quicksand_fleet.nodes import end_fleet, make_nodes, sandboxes_of
from quicksand_fleet.record import NodeRecord

from tests.conftest import wait_for
from tests.unit.remote.far import until

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def nodes(places: Paths) -> Iterator[tuple[NodeRecord, ...]]:
    yield make_nodes(places, 2).nodes
    asyncio.run(end_fleet(places, told=lambda _: None))
    assert not list((places.data / "fleet" / "nodes").iterdir())


@pytest.fixture
async def fleet(places: Paths, nodes: tuple[NodeRecord, ...]) -> AsyncIterator[Fleet]:
    async with Fleet.open(wait_s=60) as found:
        yield found
    wait_for(
        lambda: not any(sandboxes_of(places, node) for node in nodes), what="the nodes to be empty"
    )


async def test_a_sandbox_gets_a_place_and_gives_it_back(fleet: Fleet) -> None:
    sandbox = Sandbox(image="debian", fleet=fleet)
    assert sandbox.host is None
    with pytest.raises(StateError, match="no place"):
        await sandbox.checkpoint("early")
    async with sandbox:
        assert sandbox.host in ("node-1", "node-2")
        found = await sandbox.execute("echo $((6 * 7))")
        assert found.stdout == "42\n"
        await sandbox.files.write("/tmp/there", b"bytes")
        made = await sandbox.checkpoint("one")
        assert made.has_memory
        await until(lambda: sum(host.sandboxes for host in fleet.hosts()) == 1, "it to be counted")
        listed = await fleet.sandboxes()
        assert [one.id for one in listed[str(sandbox.host)]] == [sandbox.id]
        host = next(one for one in fleet.hosts() if one.name == sandbox.host)
        assert host.free_bytes < host.memory_bytes and "debian" in host.images
        await fleet.drain(host.name)
        with pytest.raises(FleetFullError, match="is drained"):
            await Sandbox(image="debian", memory=f"{host.memory_bytes}B", fleet=fleet).start()
        await fleet.drain(host.name, on=False)
    await until(lambda: not any(host.sandboxes for host in fleet.hosts()), "its place to be free")


async def test_the_command_runs_in_a_sandbox_on_a_node(fleet: Fleet) -> None:
    run = (sys.executable, "-m", "quicksand_tui", "run", "--fleet", "--rm", "debian", "--")
    ran = await asyncio.create_subprocess_exec(
        *run, "echo", "there", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await ran.communicate()
    assert (output, ran.returncode) == (b"there\n", 0)


@pytest.mark.soak
async def test_a_start_again_and_clones_have_places_and_it_is_found_by_its_name(
    fleet: Fleet, nodes: tuple[NodeRecord, ...]
) -> None:
    placed: list[str] = []

    async def look_on() -> None:
        async for event in fleet.watch():
            if event.kind is FleetEventKind.PLACED and event.reservation is not None:
                placed.append(event.reservation.host)

    looking = asyncio.create_task(look_on())
    sandbox = Sandbox(image="debian", name="again", fleet=fleet)
    await sandbox.start()
    [clone] = await sandbox.clone()
    await clone.trash()
    await sandbox.stop(grace=0)
    await sandbox.start()
    found = Sandbox.attach("again", fleet=fleet)
    assert (await found.execute("echo there")).stdout == "there\n" and found.host == sandbox.host
    found.close()
    await until(lambda: placed == [sandbox.host] * 3, "three places on one machine")
    with pytest.raises(SandboxNotFoundError, match="no machine"):
        await Sandbox.attach("nobody", fleet=fleet).execute("true")
    await sandbox.trash()
    await until(lambda: not any(host.reserved_bytes for host in fleet.hosts()), "all to be free")
    looking.cancel()
    await asyncio.wait([looking])


async def test_commands_run_over_all_nodes_and_results_are_bounded(fleet: Fleet) -> None:
    commands = [
        "echo first; echo wrong >&2; exit 3",
        "head -c 100000 /dev/zero | tr '\\0' x",
        "true",
    ]
    found: dict[int, BatchResult] = {}
    async for result in fleet.map("debian", commands, at_once=2, output_max=1000):
        found[result.index] = result
    assert {result.host for result in found.values()} == {"node-1", "node-2"}
    assert (found[0].stdout, found[0].stderr, found[0].exit_code) == ("first\n", "wrong\n", 3)
    assert (found[1].stdout, found[1].truncated, found[1].ok) == ("x" * 1000, True, True)
    assert all(result.error is None and result.attempts == 1 for result in found.values())


async def test_what_ran_on_a_lost_node_is_told_and_repeated_only_if_asked_for(
    fleet: Fleet, places: Paths, nodes: tuple[NodeRecord, ...]
) -> None:
    async def run(retries: int) -> BatchResult:
        results = fleet.map("debian", ["sleep 5; hostname"], retries=retries)
        async with contextlib.aclosing(results):
            coming = asyncio.ensure_future(anext(results))
            await until(lambda: bool(running(places, nodes)), "it to run")
            for node in nodes:
                if sandboxes_of(places, node):
                    kill_far_end(node.data(places))
            return await coming

    lost = await run(0)
    assert isinstance(lost.error, Exception) and not isinstance(lost.error, FleetFullError)
    assert (lost.exit_code, lost.attempts) == (None, 1)
    # The far end of the first one ends it some time after it has lost its client.
    await until(lambda: not running(places, nodes), "the end of the first one")
    again = await run(1)
    assert (again.error, again.exit_code, again.attempts) == (None, 0, 2)


async def test_leaving_the_loop_ends_what_runs(
    fleet: Fleet, places: Paths, nodes: tuple[NodeRecord, ...]
) -> None:
    async with contextlib.aclosing(fleet.map("debian", ["true", "sleep 600"])) as results:
        async for result in results:
            assert result.index == 0
            break
    await until(lambda: not any(sandboxes_of(places, node) for node in nodes), "their end")
    await until(lambda: not any(host.reserved_bytes for host in fleet.hosts()), "all to be free")


def running(places: Paths, nodes: tuple[NodeRecord, ...]) -> list[str]:
    return [
        entry.id
        for node in nodes
        for entry in Registry(node.paths(places)).list()
        if entry.run is not None
    ]


def kill_far_end(data: Path) -> None:
    """Kill -9 the program of a node."""
    wanted = f"QUICKSAND_DATA_DIR={data}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"serve" in words and wanted in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
