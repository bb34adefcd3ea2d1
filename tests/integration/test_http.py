"""The agent's HTTP: guest-agent/openapi.yaml, checked against an agent in a real VM."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import validate
from openapi_spec_validator.readers import read_from_filename
from quicksand import Sandbox
from quicksand.base.errors import ConfigError
from quicksand.base.paths import Paths

pytestmark = pytest.mark.vm

DOCUMENT = Path(__file__).parents[2] / "guest-agent" / "openapi.yaml"


class Client:
    """Calls operations of the document and holds every answer against it."""

    def __init__(self, port: int, token: str) -> None:
        self.document: dict[str, Any] = dict(read_from_filename(str(DOCUMENT))[0])
        self.port = port
        self.token = token
        self.called: set[tuple[str, str]] = set()

    @property
    def operations(self) -> set[tuple[str, str]]:
        paths: dict[str, dict[str, Any]] = self.document["paths"]
        return {(method, path) for path, item in paths.items() for method in item}

    async def post(self, path: str, /, **body: Any) -> dict[str, Any]:
        """A JSON operation that succeeds; returns its result."""
        status, _, data = await self.ask("post", path, json.dumps(body).encode())
        assert status == 200, (path, status, data)
        value: dict[str, Any] = json.loads(data)
        self.check(self.schema("post", path, "200"), value)
        return value

    async def refused(self, path: str, /, **body: Any) -> tuple[int, str]:
        """A JSON operation that fails; returns the status and the code."""
        status, _, data = await self.ask("post", path, json.dumps(body).encode())
        assert status >= 400, (path, data)
        value = json.loads(data)
        self.check(self.schema("post", path, "default"), value)
        return status, value["code"]

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *, as_path: str = ""
    ) -> tuple[int, str, bytes]:
        """Any request: status, content type, body. ``as_path`` is the document's template."""
        self.called.add((method, as_path or path.split("?", maxsplit=1)[0]))
        return await asyncio.to_thread(self._ask, method, path, body)

    def _ask(self, method: str, path: str, body: bytes | None) -> tuple[int, str, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            connection.request(method.upper(), path, body, headers)
            response = connection.getresponse()
            return response.status, response.headers.get("content-type", ""), response.read()
        finally:
            connection.close()

    def schema(self, method: str, path: str, status: str) -> dict[str, Any]:
        response = self.resolve(self.document["paths"][path][method]["responses"][status])
        (content,) = response["content"].values()
        found: dict[str, Any] = content["schema"]
        return found

    def resolve(self, value: dict[str, Any]) -> dict[str, Any]:
        if "$ref" in value:
            found: Any = self.document
            for step in value["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            return dict(found)
        return value

    def check(self, schema: dict[str, Any], value: object) -> None:
        whole = {**schema, "components": self.document["components"]}
        errors = [e.message for e in OAS31Validator(whole).iter_errors(value)]
        assert not errors, (errors, value)

    def events(self, template: str, method: str, data: bytes) -> list[dict[str, Any]]:
        """The server-sent events of an answer, each checked."""
        found = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: ")]
        for event in found:
            self.check(self.schema(method, template, "200"), event)
        return found


@pytest.fixture
async def client(places: Paths) -> AsyncIterator[Client]:
    async with Sandbox(image="debian", agent_http=True) as sandbox:
        assert sandbox.agent_url is not None
        assert sandbox.agent_token is not None
        match = re.fullmatch(r"http://127\.0\.0\.1:(\d+)", sandbox.agent_url)
        assert match
        yield Client(int(match[1]), sandbox.agent_token)


async def test_the_running_agent_does_what_its_document_says(client: Client) -> None:
    """Every operation is called and every answer fits its schema."""
    validate(client.document)
    await check_session(client)
    await check_commands(client)
    await check_terminals(client)
    await check_files(client)
    await check_users_and_system(client)
    assert await client.post("/shutdown", mode="poweroff", grace=0.1) is not None
    assert client.called >= client.operations, client.operations - client.called


async def check_session(client: Client) -> None:
    for method in ("get", "post"):
        status, _, data = await client.ask(method, "/ping")
        assert status == 200
        client.check(client.schema(method, "/ping", "200"), json.loads(data))
    await client.post("/authenticate", token=client.token)
    assert await client.refused("/authenticate", token="wrong") == (401, "unauthorized")
    right, client.token = client.token, "wrong"
    assert await client.refused("/info") == (401, "unauthorized")
    client.token = ""
    assert await client.refused("/execute", command="id") == (401, "unauthorized")
    client.token = right
    await client.post("/rotate_token", token="new-token")
    assert await client.refused("/info") == (401, "unauthorized")
    client.token = "new-token"


async def check_commands(client: Client) -> None:
    result = await client.post("/execute", command="echo out; echo err >&2; exit 3", cwd="/tmp")
    assert (result["stdout"], result["stderr"], result["exit_code"]) == ("out\n", "err\n", 3)
    late = await client.post("/execute", argv=["sleep", "60"], timeout=0.3)
    assert (late["exit_code"], late["timed_out"]) == (124, True)
    assert await client.refused("/execute", command="id", user="nobody-here") == (404, "not_found")
    assert (await client.refused("/execute", command="id", timeout="soon"))[0] == 400
    body = json.dumps({"command": "printf 'a\\377'; exit 4"}).encode()
    status, kind, data = await client.ask("post", "/execute_stream", body)
    assert (status, kind) == (200, "text/event-stream")
    events = client.events("/execute_stream", "post", data)
    assert [e["stream"] for e in events] == ["start", "stdout", "exit"]
    assert base64.b64decode(events[1]["data_b64"]) == b"a\xff"
    assert events[2]["exit_code"] == 4
    await check_running_commands(client)


async def check_running_commands(client: Client) -> None:
    """Input, signals and cancelling: each needs a command that runs meanwhile."""
    for how in ("/stdin", "/signal", "/cancel", "/kill"):
        body = json.dumps({"argv": ["cat"], "stdin": True}).encode()
        reading = asyncio.create_task(client.ask("post", "/execute_stream", body))
        processes: list[int] = []
        async with asyncio.timeout(60):
            while not processes:
                found = (await client.post("/processes"))["processes"]
                processes = [p["pid"] for p in found if p["command"] == "cat"]
        # Commands are numbered; the ones before this have ended.
        number = await running_command(client)
        if how == "/stdin":
            await client.post(how, id=number, data="typed", eof=True)
        elif how == "/signal":
            assert (await client.post(how, id=number, signal="TERM"))["delivered"]
        elif how == "/cancel":
            await client.post(how, id=number, grace=0.05)
        else:
            await client.post(how, pid=processes[0], signal=9)
        events = client.events("/execute_stream", "post", (await reading)[2])
        assert events[-1]["stream"] == "exit"
        if how == "/stdin":
            assert [e.get("data") for e in events[1:-1]] == ["typed"]


async def running_command(client: Client) -> int:
    """The number of the one command that runs: others refuse a signal 0."""
    for number in range(1, 100):
        body = json.dumps({"id": number, "signal": 0}).encode()
        status, _, data = await client.ask("post", "/signal", body)
        if status == 200 and json.loads(data)["delivered"]:
            return number
    raise AssertionError("no command runs")


async def check_terminals(client: Client) -> None:
    opened = await client.post("/pty_open", argv=["/bin/sh"], cols=90, rows=20)
    session = opened["session"]
    listed = (await client.post("/pty_list"))["sessions"]
    assert [(t["session"], t["cols"], t["rows"]) for t in listed] == [(session, 90, 20)]
    await client.post("/pty_resize", session=session, cols=100, rows=30)
    assert (await client.post("/pty_signal", session=session, signal="WINCH"))["delivered"]
    typed = b"stty size; exit 5\n"
    template = "/pty/{session}/input"
    status, _, data = await client.ask("post", f"/pty/{session}/input", typed, as_path=template)
    assert status == 200, data
    status, kind, data = await client.ask("get", f"/pty/{session}", as_path="/pty/{session}")
    assert (status, kind) == (200, "text/event-stream")
    events = client.events("/pty/{session}", "get", data)
    screen = b"".join(base64.b64decode(e.get("data_b64", "")) for e in events)
    assert b"30 100" in screen
    assert (events[-1]["stream"], events[-1]["exit_code"]) == ("exit", 5)
    other = (await client.post("/pty_open"))["session"]
    await client.post("/pty_close", session=other)
    assert await client.refused("/pty_close", session="p99") == (404, "not_found")


async def check_files(client: Client) -> None:
    data = bytes(range(256)) * 4096
    status, _, answer = await client.ask("put", "/files?path=/root/d/f&parents=true", data)
    assert (status, json.loads(answer)) == (200, {"bytes": len(data)})
    status, kind, back = await client.ask("get", "/files?path=/root/d/f&offset=1")
    assert (status, kind, back) == (200, "application/octet-stream", data[1:])
    assert (await client.ask("get", "/files?path=/none"))[0] == 404
    assert (await client.post("/file_stat", path="/root/d/f"))["size"] == len(data)
    await client.post("/file_mkdir", path="/root/d/e", mode=0o700)
    await client.post("/file_symlink", path="/root/d/l", target="f")
    await client.post("/file_link", **{"from": "/root/d/f", "to": "/root/d/h"})
    assert (await client.post("/file_stat", path="/root/d/h"))["links"] == 2
    await client.post("/file_remove", path="/root/d/h")
    await client.post("/file_set_time", path="/root/d/f", mtime_ns=-1)
    assert (await client.post("/file_stat", path="/root/d/f"))["mtime_ns"] == -1
    await client.post("/file_chmod", path="/root/d/f", mode=0o600)
    await client.post("/file_chown", path="/root/d/f", user="quicksand")
    await client.post("/file_rename", **{"from": "/root/d/f", "to": "/root/d/g"})
    entries = (await client.post("/file_list", path="/root/d"))["entries"]
    assert [(e["name"], e["type"]) for e in entries] == [
        ("e", "dir"),
        ("g", "file"),
        ("l", "symlink"),
    ]
    assert await client.refused("/file_mkdir", path="/root/d/e") == (409, "exists")
    await client.post("/file_remove", path="/root/d", recursive=True)
    assert await client.refused("/file_stat", path="/root/d") == (404, "not_found")


async def check_renewing(client: Client, unix_ns: int) -> None:
    entropy = base64.b64encode(bytes(32)).decode()
    done = await client.post(
        "/renew", unix_ns=unix_ns, entropy_b64=entropy, hostname="renewed", token=client.token
    )
    assert done["hostname"] == "renewed"
    assert 0 <= done["unix_ns"] - unix_ns < 5e9
    assert await client.refused("/renew", unix_ns=unix_ns) == (400, "bad_request")
    assert await client.refused("/renew", entropy_b64=entropy) == (400, "bad_request")


async def check_users_and_system(client: Client) -> None:
    assert (await client.post("/create_user", name="alice"))["home"] == "/home/alice"
    assert await client.refused("/create_user", name="alice") == (409, "exists")
    found = await client.post("/find_user", user="alice")
    assert (found["home"], found["uid"]) == ("/home/alice", found["gid"])
    await client.post("/delete_user", name="alice")
    assert await client.refused("/find_user", user="alice") == (404, "not_found")
    assert (await client.post("/find_user"))["name"] == "root"
    info = await client.post("/info")
    assert info["arch"] == "x86_64"
    assert (await client.post("/processes", limit=1))["total"] > 1
    await client.post("/set_time", unix_ns=info["unix_ns"])
    await client.post("/reseed", entropy_b64=base64.b64encode(bytes(32)).decode())
    assert (await client.post("/set_identity", hostname="other"))["hostname"] == "other"
    await check_renewing(client, info["unix_ns"])
    for method in ("/sync", "/trim", "/drop_caches", "/grow_root"):
        await client.post(method)
    await check_shares(client)
    await client.post("/freeze", seconds=10)
    assert await client.refused("/freeze") == (409, "frozen")
    assert 0 < (await client.post("/thaw"))["frozen_s"] < 10
    assert await client.refused("/thaw") == (409, "not_frozen")
    await client.ask("put", "/files?path=/dev/shm/x", b"123")
    found = {"path": "/dev/shm/x", "bytes": 3, "entries": 1}
    assert await client.post("/volatile") == {"paths": [found], "truncated": False}
    status, _, data = await client.ask("post", "/no_such_method", b"{}")
    client.called.discard(("post", "/no_such_method"))
    client.check(client.document["components"]["schemas"]["Error"], json.loads(data))
    assert status == 404


async def check_shares(client: Client) -> None:
    await client.post("/load_share_client")
    assert await client.post("/shares") in (
        {"shares": [], "mounting": []},
        {"shares": [], "mounting": [], "connected": []},  # the kernel's client is loaded
    )
    for target in ("/", "/proc/1", "/dev/shm", "/mnt/../run", "here"):
        mount = {"share": "QUICKSAND0", "target": target, "options": ["vers=3.1.1"]}
        assert await client.refused("/mount_share", **mount) == (400, "bad_request"), target
    assert await client.refused("/unmount_share", target="/mnt") == (404, "not_found")
    await client.post("/detach_shares", shares=["QUICKSAND0"])
    await client.post("/sync_shares")


async def test_without_asking_for_it_there_is_no_http(places: Paths) -> None:
    async with Sandbox(image="debian") as sandbox:
        assert sandbox.agent_url is None
        assert "hostfwd" not in " ".join(sandbox.qemu_command)
    with pytest.raises(ConfigError, match="agent_http"):
        Sandbox(image="debian", agent_http=True, network_mode="none")
