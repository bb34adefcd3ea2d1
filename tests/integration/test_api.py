"""`quicksand-tui api` on real VMs, by a client that knows only the protocol."""

from __future__ import annotations

import asyncio
import base64
import signal
from collections.abc import AsyncIterator

import pytest
from quicksand.base.paths import Paths
from quicksand.records.registry import Registry
from quicksand_e2b.places import api_dir
from quicksand_e2b.records import engine_name

from tests.conftest import wait_for
from tests.integration.api_client import Box, Server
from tests.unit.api.fakes import decode, next_message, text_of, until

pytestmark = pytest.mark.vm


@pytest.fixture
async def server(places: Paths) -> AsyncIterator[Server]:
    found = Server()
    await found.start()
    yield found
    for sandbox in (await found.call("GET", "/v2/sandboxes"))[1]:
        await found.call("DELETE", f"/sandboxes/{sandbox['sandboxID']}")
    for snapshot in (await found.call("GET", "/snapshots"))[1]:
        await found.call("DELETE", f"/templates/{snapshot['snapshotID']}")
    await found.end(signal.SIGTERM)
    await found.session.close()
    wait_for(lambda: not Registry(places).list(), what="its sandboxes to be gone")


async def test_commands_and_files_do_what_they_do_in_a_guest(server: Server) -> None:
    box = await server.create(envVars={"FROM": "request"})

    said = await box.output("id -un; pwd; echo $FROM; sudo id -un; echo err >&2")
    assert said == "user\n/home/user\nrequest\nroot\n"
    failed = (await box.run("kill -KILL $$"))[-2]["event"]["end"]
    assert (failed["exitCode"], failed["status"]) == (-1, "signal: killed")
    assert (await box.run("exit 3"))[-2]["event"]["end"]["exitCode"] == 3
    content = bytes(range(256)) * 4000
    await box.write("deep/er/file.bin", content)
    assert await box.read("/home/user/deep/er/file.bin") == content
    assert await box.output("stat -c '%U %a' deep/er deep/er/file.bin") == "user 755\nuser 644\n"
    assert (await box.read("/proc/sys/kernel/ostype")) == b"Linux\n"
    await box.run("ln -s deep/er/file.bin link")
    _, stat = await box.rpc("filesystem.Filesystem/Stat", {"path": "link"})
    assert stat["entry"]["symlinkTarget"] == "/home/user/deep/er/file.bin"
    assert stat["entry"]["type"] == "FILE_TYPE_FILE"
    _, moved = await box.rpc(
        "filesystem.Filesystem/Move", {"source": "link", "destination": "/dev/shm/x/link"}
    )
    assert moved["entry"]["path"] == "/dev/shm/x/link", "that is another file system"
    late, _ = await box.start("sleep 60", stdin=False)
    nowhere = {"process": {"cmd": "/bin/bash", "args": ["-c", "true"], "cwd": "/no"}}
    cut = await box.open("process.Process/Start", nowhere)
    assert decode(await cut.read())[0]["end of stream"]["error"]["code"] == "invalid_argument"
    signal_ = {"process": {"pid": late}, "signal": "SIGNAL_SIGKILL"}
    assert (await box.rpc("process.Process/SendSignal", signal_))[0] == 200
    unknown = {**signal_, "process": {"pid": 4000000}}
    assert (await box.rpc("process.Process/SendSignal", unknown))[0] == 404
    (reading,) = (await box.call("GET", "/metrics"))[1]
    assert reading["memTotal"] > reading["memUsed"] > 0
    assert reading["memTotal"] > reading["memCache"] > 0
    assert (await box.call("DELETE"))[0] == 204
    assert await box.health() == 502


async def test_ports_of_a_guest_are_reached_and_a_server_that_ends_leaves_all_as_it_is(
    server: Server,
) -> None:
    box = await server.create()
    serve = "cd /tmp && echo served > it && exec python3 -m http.server 8000 --bind 127.0.0.1"
    await box.start(serve, stdin=False)

    async def get() -> tuple[int, str]:
        url = f"{server.url}/ports/8000-{box.id}/it"
        async with server.session.get(url) as response:
            return response.status, await response.text()

    async with asyncio.timeout(60):
        while (await get())[0] == 502:
            await asyncio.sleep(0.1)
    assert await get() == (200, "served\n")

    await server.end(signal.SIGTERM)
    await server.start()

    assert await get() == (200, "served\n")


@pytest.mark.parametrize("step", ["pause", "fork"])
async def test_a_server_that_is_killed_at_a_step_loses_and_leaks_nothing(
    server: Server, places: Paths, step: str
) -> None:
    box = await server.create()
    await box.write("note", b"kept")
    records = api_dir(places) / "sandboxes"

    def is_at_it() -> bool:
        found = [path.read_text() for path in records.glob("i*.json")]
        return any('"pausing"' in text or '"making"' in text for text in found)

    call = asyncio.create_task(box.call("POST", f"/{step}", {"count": 2}))
    await until(lambda: is_at_it() or call.done())
    await server.end(signal.SIGKILL)
    await asyncio.wait((call,))
    call.exception()

    await server.start()

    (listed,) = (await server.call("GET", "/v2/sandboxes"))[1]
    assert listed["sandboxID"] == box.id
    assert (await box.call("POST", "/connect", {"timeout": 60}))[0] in (200, 201)
    assert await box.read("note") == b"kept"
    (entry,) = Registry(places).list()
    assert entry.name == engine_name(box.id)


async def test_a_killed_server_loses_neither_sandboxes_nor_what_runs_in_them(
    server: Server,
) -> None:
    box = await server.create()
    value = {
        "process": {"cmd": "/bin/bash", "args": ["-i"]}, "pty": {"size": {"cols": 80, "rows": 24}},
        "tag": "terminal",
    }  # fmt: skip
    terminal = await box.open("process.Process/Start", value)
    pty = (await next_message(terminal))["event"]["start"]["pid"]
    script = "read a; echo got $a; read b; echo and $b >&2; exit 5"
    command, response = await box.start(script, stdin=True)

    await server.end(signal.SIGKILL)
    terminal.close()
    response.close()
    await server.start()

    assert await box.health() == 204
    _, listed = await box.rpc("process.Process/List", {})
    assert {found["pid"] for found in listed["processes"]} == {pty, command}
    again = await box.open("process.Process/Connect", {"process": {"tag": "terminal"}})
    assert (await next_message(again))["event"] == {"start": {"pid": pty}}
    typed = base64.b64encode(b"echo so$((40+2))far; exit 7\n").decode()
    sent = {"process": {"pid": pty}, "input": {"pty": typed}}
    assert (await box.rpc("process.Process/SendInput", sent))[0] == 200
    messages = decode(await again.read())
    assert "so42far" in text_of(messages, "pty")
    assert messages[-2]["event"]["end"]["exitCode"] == 7
    connected = await box.open("process.Process/Connect", {"process": {"pid": command}})
    assert (await next_message(connected))["event"] == {"start": {"pid": command}}
    told = base64.b64encode(b"one\ntwo\n").decode()
    sent = {"process": {"pid": command}, "input": {"stdin": told}}
    assert (await box.rpc("process.Process/SendInput", sent))[0] == 200
    messages = decode(await connected.read())
    assert text_of(messages) == "got one\n"
    assert text_of(messages, "stderr") == "and two\n"
    assert messages[-2]["event"]["end"]["exitCode"] == 5


async def test_pauses_snapshots_and_forks_keep_memory_and_disk(server: Server) -> None:
    box = await server.create()
    await box.write("note", b"kept")
    running, response = await box.start("sleep 300", stdin=False)
    response.close()
    boot = await box.read("/proc/sys/kernel/random/boot_id")

    status, snapshot = await box.call("POST", "/snapshots", {"name": "mine"})
    assert status == 201, snapshot
    status, forked = await box.call("POST", "/fork", {"count": 1})
    fork = Box(server, forked[0]["sandbox"])
    assert await fork.read("note") == b"kept"
    assert await fork.output(f"kill -0 {running} && echo alive") == "alive\n"
    await fork.write("note", b"changed")
    await fork.call("DELETE")
    assert (await box.call("POST", "/pause", {}))[0] == 204
    assert await box.health() == 502
    assert (await box.call("POST", "/connect", {"timeout": 60}))[0] == 201
    assert await box.read("note") == b"kept"
    assert await box.read("/proc/sys/kernel/random/boot_id") == boot
    assert await box.output(f"kill -0 {running} && echo alive") == "alive\n"
    assert (await box.call("POST", "/pause", {"memory": False}))[0] == 204
    await server.end(signal.SIGKILL)
    await server.start()
    assert (await box.call("GET"))[1]["pauseMode"] == "filesystem"
    assert (await box.call("POST", "/connect", {}))[0] == 201
    assert await box.read("note") == b"kept"
    assert await box.read("/proc/sys/kernel/random/boot_id") != boot
    await box.call("DELETE")
    copy = await server.create("mine")
    assert await copy.read("note") == b"kept"
    assert await copy.output("id -un") == "user\n"


async def test_a_server_that_is_killed_while_it_makes_something_leaves_nothing(
    server: Server, places: Paths
) -> None:
    call = asyncio.create_task(server.call("POST", "/v2/sandboxes", {"templateID": "base"}))
    records = api_dir(places) / "sandboxes"
    await until(lambda: list(records.glob("i*.json")))
    await server.end(signal.SIGKILL)
    await asyncio.wait((call,))
    call.exception()

    await server.start()

    assert (await server.call("GET", "/v2/sandboxes"))[1] == []
    # The keeper of what was being started ends it.
    wait_for(lambda: not Registry(places).list(), what="its sandbox to be gone")
    assert not list(records.glob("i*.json"))
    box = await server.create(timeout=0)
    wait_for(lambda: not Registry(places).list(), what="its time to be up")
    assert (await box.call("GET"))[0] == 404
