"""`quicksand-tui api --fleet` over two nodes of this machine, with real VMs on them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from quicksand.base.paths import Paths
from quicksand_e2b.places import api_dir
from quicksand_e2b.records import engine_name
from quicksand_e2b.sandboxes import LATE_S
from quicksand_fleet.nodes import end_fleet, make_nodes, sandboxes_of
from quicksand_fleet.record import NodeRecord

from tests.integration.api_client import Box, Server
from tests.integration.e2b_sdk import install, run_script
from tests.integration.shared.kept import Nodes
from tests.unit.api.fakes import decode, next_message, text_of

pytestmark = pytest.mark.vm

AWAY_S = 90.0
"""Within which a host that is frozen is seen to be away, also on a busy machine."""


@pytest.fixture
async def nodes(places: Paths, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Nodes]:
    made = await asyncio.to_thread(lambda: make_nodes(places, 2).nodes)
    found = Nodes(places, made, monkeypatch)
    yield found
    for node in made:
        found.thaw(node.name)
    await end_fleet(places, told=lambda _: None)


@pytest.fixture
async def server(nodes: Nodes) -> AsyncIterator[Server]:
    found = Server("--fleet")
    await found.start()
    yield found
    await _clear(found)
    await found.end(signal.SIGTERM)
    await found.session.close()
    left = {name: [e.name for e in sandboxes_of(nodes.places, n)] for name, n in _each(nodes)}
    assert left == {"node-1": [], "node-2": []}


def _each(nodes: Nodes) -> list[tuple[str, NodeRecord]]:
    return sorted(nodes.by_name.items())


async def _clear(server: Server) -> None:
    for sandbox in (await server.call("GET", "/v2/sandboxes"))[1]:
        await server.call("DELETE", f"/sandboxes/{sandbox['sandboxID']}")
    for snapshot in (await server.call("GET", "/snapshots"))[1]:
        await server.call("DELETE", f"/templates/{snapshot['snapshotID']}")


def host_of(places: Paths, box: Box) -> str:
    """The host of a sandbox, by its record."""
    record = json.loads((api_dir(places) / "sandboxes" / f"{box.id}.json").read_text())
    return str(record["host"])


def runs_on(nodes: Nodes, box: Box) -> list[str]:
    """The nodes that have it running, by their own records."""
    return [
        name
        for name, node in _each(nodes)
        for entry in sandboxes_of(nodes.places, node)
        if entry.name == engine_name(box.id) and entry.run is not None
    ]


def states(places: Paths) -> set[str]:
    """What is being done with sandboxes, by their records."""
    found = set()
    for path in (api_dir(places) / "sandboxes").glob("i*.json"):
        with contextlib.suppress(OSError):
            record = json.loads(path.read_text())
            found.add(f"{record['state']} {'placed' if record['host'] else ''}".strip())
    return found


async def until(condition: Callable[[], Any], what: str, *, within_s: float = 60.0) -> None:
    """Wait until ``condition``, which may be awaited, holds."""
    async with asyncio.timeout(within_s):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.005)


async def spread(server: Server, places: Paths) -> dict[str, Box]:
    """A sandbox on each node."""
    found: dict[str, Box] = {}
    for _ in range(8):
        box = await server.create(timeout=3600)
        host = host_of(places, box)
        if host in found:
            await box.call("DELETE")
        found.setdefault(host, box)
        if len(found) == 2:
            return found
    raise AssertionError(f"all are on {[*found]}")


async def test_sandboxes_of_a_fleet_are_used_as_those_of_one_machine(
    server: Server, nodes: Nodes
) -> None:
    boxes = await spread(server, nodes.places)
    for host, box in boxes.items():
        assert runs_on(nodes, box) == [host]
        await box.write("note", host.encode())
        assert await box.output("cat note; id -un") == f"{host}user\n"
        assert await box.health() == 204
    status, listed = await server.call("GET", "/v2/sandboxes")
    assert {one["sandboxID"] for one in listed} == {box.id for box in boxes.values()}

    box, other = boxes["node-1"], boxes["node-2"]
    mkdir = "mkdir www && cd www && echo served > index.html"
    _, response = await box.start(f"{mkdir} && exec python3 -m http.server 8000", stdin=False)
    response.close()
    url = f"{server.url}/ports/8000-{box.id}/"

    async def is_served() -> bool:
        async with server.session.get(url) as answer:
            return answer.status == 200 and await answer.text() == "served\n"

    await until(is_served, "the port to be served")

    status, [reading] = await box.call("GET", "/metrics")
    assert (status, reading["memTotal"] > reading["memUsed"] > 0) == (200, True)
    status, logs = await box.call("GET", "/logs")
    assert (status, set(logs)) == (200, {"logs", "logEntries"})
    boot = await box.read("/proc/sys/kernel/random/boot_id")
    status, snapshot = await box.call("POST", "/snapshots", {"name": "mine"})
    assert status == 201, snapshot
    assert (await box.call("POST", "/pause", {}))[0] == 204
    assert runs_on(nodes, box) == []
    assert await box.health() == 502
    assert (await box.call("POST", "/connect", {"timeout": 3600}))[0] == 201
    assert await box.read("/proc/sys/kernel/random/boot_id") == boot
    copy = await server.create("mine")
    assert host_of(nodes.places, copy) == "node-1"
    assert await copy.read("note") == b"node-1"
    status, [forked] = await other.call("POST", "/fork", {"count": 1})
    fork = Box(server, forked["sandbox"])
    assert host_of(nodes.places, fork) == "node-2"
    assert await fork.read("note") == b"node-2"

    headers = {"X-API-KEY": server.key}
    async with server.session.get(server.url + "/metrics", headers=headers) as answer:
        text = await answer.text()
    labels = rf'\{{sandbox="{other.id}",host="node-2"\}}'
    assert re.search(rf"quicksand_sandbox_memory_bytes{labels} \d{{7,}}", text)
    assert re.search(rf"quicksand_sandbox_cpu_seconds_total{labels} \d", text)
    assert 'quicksand_host_up{host="node-1"} 1' in text
    assert re.search(r'quicksand_host_memory_bytes\{host="node-2"\} \d{8,}', text)

    assert (await box.call("DELETE"))[0] == 204
    assert (await box.call("GET"))[0] == 404
    assert runs_on(nodes, box) == []
    assert await copy.read("note") == b"node-1", "the snapshot's sandbox is gone, and it goes on"


async def status_of(server: Server, box: Box) -> tuple[int, str]:
    """The status of a request about a sandbox, and when it may be sent again."""
    headers = {"X-API-KEY": server.key}
    url = f"{server.url}/sandboxes/{box.id}"
    async with server.session.get(url, headers=headers) as answer:
        return answer.status, answer.headers.get("Retry-After", "")


async def test_what_no_host_has_room_for_is_refused_and_says_what_each_lacks(
    nodes: Nodes, places: Paths
) -> None:
    server = Server("--fleet", "--memory", "60G")
    await server.start()
    status, told = await server.call("POST", "/v2/sandboxes", {"templateID": "base"})
    assert status == 429
    assert all(f"{name} has" in told["message"] for name in nodes.by_name), told
    assert states(places) == set()
    await server.end(signal.SIGTERM)
    await server.session.close()


SDK = """
from e2b import Sandbox

SLOW = 300  # seconds: an emulated guest on a busy host
boxes = [Sandbox.create(timeout=1800, request_timeout=SLOW) for _ in range(3)]
for number, box in enumerate(boxes):
    box.files.write("number", str(number))
for number, box in enumerate(boxes):
    assert box.commands.run("cat number", request_timeout=SLOW).stdout == str(number)
listed = {one.sandbox_id for one in Sandbox.list().next_items()}
assert listed == {box.sandbox_id for box in boxes}, listed
boxes[0].pause(request_timeout=SLOW)
again = Sandbox.connect(boxes[0].sandbox_id, request_timeout=SLOW)
print(again.files.read("number"), *(box.kill(request_timeout=SLOW) for box in boxes))
"""


@pytest.mark.soak
async def test_the_sdk_uses_a_fleet_as_one_machine(server: Server, tmp_path: Path) -> None:
    sdk = await asyncio.to_thread(install, tmp_path / "venv", "e2b")
    script = tmp_path / "script.py"
    script.write_text(SDK)
    address = server.url.removeprefix("http://")
    assert await asyncio.to_thread(run_script, sdk, script, address, 900) == "0 True True True\n"


@pytest.mark.soak
async def test_a_frozen_host_is_told_and_loses_nothing_and_the_other_goes_on(
    server: Server, nodes: Nodes
) -> None:
    boxes = await spread(server, nodes.places)
    ours, frozen = boxes["node-1"], boxes["node-2"]
    await frozen.write("note", b"kept")
    running, response = await frozen.start("sleep 3; echo still; sleep 1000", stdin=False)

    nodes.freeze("node-2")

    async def is_away() -> bool:
        return (await status_of(server, frozen))[0] == 503

    await until(is_away, "its absence to be seen", within_s=AWAY_S)
    assert await status_of(server, frozen) == (503, "5")
    assert await frozen.health() == 503
    for method, path, body in (
        ("DELETE", "", None),
        ("POST", "/pause", {}),
        ("POST", "/timeout", {"timeout": 10}),
        ("POST", "/snapshots", {}),
        ("POST", "/fork", {"count": 1}),
    ):
        status, told = await frozen.call(method, path, body)
        assert status == 503, (method, path, told)
        assert "node-2" in told["message"]
    assert await ours.output("echo goes on") == "goes on\n"
    _, listed = await server.call("GET", "/v2/sandboxes")
    assert {one["sandboxID"] for one in listed} == {ours.id, frozen.id}
    created = await server.create(timeout=3600)
    assert host_of(nodes.places, created) == "node-1"
    headers = {"X-API-KEY": server.key}
    async with server.session.get(server.url + "/metrics", headers=headers) as answer:
        text = await answer.text()
    assert 'quicksand_host_up{host="node-2"} 0' in text and frozen.id not in text

    nodes.thaw("node-2")

    async def is_back() -> bool:
        return (await status_of(server, frozen))[0] == 200

    await until(is_back, "it to be back", within_s=AWAY_S)
    assert await frozen.read("note") == b"kept"
    assert await frozen.output(f"kill -0 {running} && echo alive") == "alive\n"
    response.close()


@pytest.mark.soak
async def test_a_link_that_dies_within_a_request_is_told_and_nothing_is_done_twice(
    server: Server, nodes: Nodes
) -> None:
    box = await server.create(timeout=3600)
    host = host_of(nodes.places, box)
    script = "echo begun; while [ ! -e go ]; do sleep 0.2; done; echo over; exit 3"
    pid, response = await box.start(script, stdin=False)
    assert "event" in await next_message(response)
    sent = asyncio.Event()

    async def body() -> Any:
        yield b"once\n" * 100_000
        sent.set()
        await asyncio.sleep(3600)

    async def upload() -> tuple[int, str]:
        url, params = server.url + "/files", {"path": "half"}
        headers = {**box.headers, "Content-Type": "application/octet-stream"}
        async with server.session.post(url, params=params, data=body(), headers=headers) as got:
            return got.status, got.headers.get("Should-Retry", "")

    uploading = asyncio.create_task(upload())
    await sent.wait()

    nodes.signal(host, signal.SIGKILL, sandboxes=False)

    assert await uploading == (503, "false")
    response.close()

    async def is_back() -> bool:
        return await box.health() == 204

    await until(is_back, "its host to be back", within_s=AWAY_S)
    assert runs_on(nodes, box) == [host]
    again = await box.open("process.Process/Connect", {"process": {"pid": pid}})
    assert (await next_message(again))["event"] == {"start": {"pid": pid}}
    await box.write("go", b"")
    messages = decode(await again.read())
    assert text_of(messages) == "over\n"
    assert messages[-2]["event"]["end"]["exitCode"] == 3


@pytest.mark.soak
@pytest.mark.timeout(1500)
async def test_a_server_that_is_killed_at_any_step_loses_and_leaks_nothing(
    server: Server, nodes: Nodes
) -> None:
    box = await server.create(timeout=3600)
    await box.write("note", b"kept")

    def entries() -> list[Any]:
        name = engine_name(box.id)
        found = [entry for _, node in _each(nodes) for entry in sandboxes_of(nodes.places, node)]
        return [entry for entry in found if entry.name != name]

    async def kill_at(is_at_it: Callable[[], Any], work: Any) -> None:
        call = asyncio.create_task(work)
        await until(lambda: is_at_it() or call.done(), "the step")
        await server.end(signal.SIGKILL)
        await asyncio.wait((call,))
        call.exception()
        await server.start()
        _, listed = await server.call("GET", "/v2/sandboxes")
        ids = {one["sandboxID"] for one in listed}
        assert box.id in ids
        for id_ in ids - {box.id}:  # made just before: only its client had not heard of it
            assert (await server.call("DELETE", f"/sandboxes/{id_}"))[0] == 204

    def create() -> Any:
        return server.call("POST", "/v2/sandboxes", {"templateID": "base", "timeout": 3600})

    await kill_at(lambda: "making" in states(nodes.places), create())
    await kill_at(lambda: "making placed" in states(nodes.places), create())
    await kill_at(entries, create())
    await kill_at(lambda: any(entry.run is not None for entry in entries()), create())
    await kill_at(
        lambda: "making placed" in states(nodes.places), box.call("POST", "/fork", {"count": 2})
    )
    await kill_at(entries, box.call("POST", "/fork", {"count": 1}))

    async def is_there() -> bool:
        status, told = await box.call("POST", "/connect", {"timeout": 3600})
        assert status in (200, 201, 503), told
        return status != 503

    await kill_at(lambda: "pausing placed" in states(nodes.places), box.call("POST", "/pause", {}))
    await until(is_there, "it to be there after a pause", within_s=LATE_S + AWAY_S)
    assert (await box.call("POST", "/pause", {}))[0] == 204
    resuming = box.call("POST", "/connect", {"timeout": 3600})
    await kill_at(lambda: runs_on(nodes, box), resuming)
    await until(is_there, "it to be there after a resume", within_s=LATE_S + AWAY_S)
    assert await box.read("note") == b"kept"
    assert len(runs_on(nodes, box)) == 1
    await kill_at(
        lambda: list((api_dir(nodes.places) / "snapshots").glob("i*.json")),
        box.call("POST", "/snapshots", {}),
    )

    await until(
        lambda: states(nodes.places) == {"running placed"} and not entries(),
        "what was half made to be gone",
        within_s=LATE_S + AWAY_S,
    )
    assert await box.read("note") == b"kept"
    box_ending = box.call("DELETE")
    call = asyncio.create_task(box_ending)
    await until(lambda: "ending placed" in states(nodes.places) or call.done(), "its end")
    await server.end(signal.SIGKILL)
    await asyncio.wait((call,))
    call.exception()
    await server.start()
    await until(lambda: not states(nodes.places) and not runs_on(nodes, box), "nothing to be left")
