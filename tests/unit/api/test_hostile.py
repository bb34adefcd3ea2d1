"""Whatever comes to any route: it is refused with a reason, nobody else is held up, and nothing is
a fault of the server (the fixture looks). Routes are taken of the router, so that a new one is
tried, too."""

from __future__ import annotations

import asyncio
import io
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from quicksand_e2b import bodies, fanout, rpc
from quicksand_e2b.fields import BODY_MAX
from quicksand_e2b.gate import LEFT, middleware
from yarl import URL

from tests.unit.api.fakes import Api, envelope, next_message, until

BOMBS = {
    "deep lists": b"[" * (BODY_MAX - 1),
    "deep objects": b'{"a":' * (BODY_MAX // 5),
    "deep in a member": b'{"process":' + b"[" * 500_000 + b"]" * 500_000 + b"}",
    "many members": b"{" + b",".join(b'"%d":0' % n for n in range(20_000)) + b"}",
    "long number": b'{"timeout":' + b"9" * 900_000 + b"}",
    "not a number": b'{"timeout": NaN, "count": 1e999, "duration": -Infinity}',
    "surrogates": b'{"templateID": "\\ud800", "path": "\\udfff", "process": {"cmd": "\\ud800"}}',
    "wrong types": b'{"templateID": {}, "timeout": [], "metadata": 7, "envVars": "x", '
    b'"count": true, "name": 1.5, "path": [], "process": "x", "source": {}, "signal": [1]}',
    "not UTF-8": b'{"templateID": "\xff\xfe"}',
    "too large": b" " * (BODY_MAX + 1),
}
TRICKS = (
    "..", "../..", "../../etc/passwd", "..\\..", ".", "/", "//", "\0", "a\0b", "\n", "a\r\nX: y",
    "%00", "%2e%2e", "*", "'; --", "\u202e", "\ud7ff", "x" * 3000, "api-x", "~root", "~/..",
)  # fmt: skip
"""Instead of an id, a name, or a path."""


def routes(api: Api) -> Iterator[tuple[str, str]]:
    """The method and the path of each route; "{}" stands for what varies."""
    assert api.client.app is not None
    for route in api.client.app.router.routes():
        resource = route.resource
        assert resource is not None
        path = resource.canonical
        for name in ("id", "name", "alias", "rest"):
            path = path.replace("{" + name + "}", "{}")
        assert path.count("{") == path.count("{}"), f"what may stand for this in {path}?"
        yield ("POST" if route.method == "*" else route.method), path


async def _refused(response: aiohttp.ClientResponse) -> None:
    """An answer that says what was wrong, in the form of its route."""
    if response.content_type == "application/connect+json":
        assert b'"error"' in await response.read()
        return
    assert 400 <= response.status < 500 or response.status in (501, 502), await response.text()
    if response.method != "HEAD":
        assert (await response.json())["message"]


async def test_no_route_answers_a_name_that_is_not_ours(api: Api) -> None:
    for method, path in routes(api):
        for host in ("rebound.example", "localhost.example", "127.0.0.1.example", ""):
            response = await api.call(method, path.replace("{}", "x"), headers={"Host": host})
            assert response.status in (400, 421), (method, path, host)


async def test_no_route_answers_who_has_no_secret(api: Api) -> None:
    made, theirs = await api.create(), await api.create(metadata={"a": "b"})
    for method, path in routes(api):
        for headers in (
            {}, {"X-API-KEY": "x"}, {"X-Access-Token": api.key}, {"Authorization": "Bearer x"},
            {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": theirs["envdAccessToken"]},
            {"E2b-Sandbox-Id": made["sandboxID"], "X-Access-Token": made["trafficAccessToken"]},
            {"E2b-Sandbox-Id": made["sandboxID"], "X-API-KEY": api.other,
             "Authorization": "Basic cm9vdDo="},
        ):  # fmt: skip
            if path == "/health" and "E2b-Sandbox-Id" in headers:
                continue  # says that it runs to who knows its id
            asked = path.replace("{}", made["sandboxID"])
            if (
                "X-API-KEY" in headers
                and headers["X-API-KEY"] == api.other
                and ("{}" not in path and "." not in path and path != "/files")
            ):
                continue  # another owner's own
            response = await api.client.request(method, asked, headers=headers)
            assert response.status in (401, 403, 404, 501, 502), (method, path, headers)
    assert api.guest(made).spawned == []
    assert api.runs(made)


@pytest.mark.parametrize("bomb", BOMBS)
async def test_every_route_survives_every_body(api: Api, bomb: str) -> None:
    made = await api.create()
    for method, path in routes(api):
        if method == "DELETE":
            continue
        asked = path.replace("{}", made["sandboxID"])
        headers = {**api.headers(made), "X-API-KEY": api.key}
        for kind, body in (
            ("application/json", BOMBS[bomb]),
            ("application/connect+json", b"\0" + len(BOMBS[bomb]).to_bytes(4, "big") + BOMBS[bomb]),
        ):
            async with api.client.request(
                method, asked, data=io.BytesIO(body), headers={**headers, "Content-Type": kind}
            ) as response:
                assert response.status != 500, (method, path, kind, await response.text())
        if not api.runs(made):
            made = await api.create()  # what makes sense in it was done


@pytest.mark.parametrize("trick", TRICKS)
async def test_names_and_ids_lead_nowhere_else(api: Api, trick: str) -> None:
    coded = urllib.parse.quote(trick, safe="")
    for method, path in routes(api):
        if "{}" not in path:
            continue
        url = URL(str(api.client.make_url("/")) + path.replace("{}", coded)[1:], encoded=True)
        headers = {"X-API-KEY": api.key}
        async with api.client.session.request(method, url, headers=headers, json={}) as response:
            await _refused(response)
    response = await api.call("POST", "/v2/sandboxes", {"templateID": trick})
    await _refused(response)
    assert api.machines.found == {}
    places = sorted(found.name for found in api.sandboxes.records.directory.iterdir())
    assert places == ["keys.json", "processes", "sandboxes", "snapshots"]


@pytest.mark.parametrize("trick", TRICKS)
async def test_paths_of_files_stay_in_the_guest_and_are_told_as_they_are(
    api: Api, trick: str
) -> None:
    made = await api.create()
    form = aiohttp.FormData()
    # No client sends a control character there.
    form.add_field("file", b"x", filename="".join(c for c in trick if c.isprintable()) or "x")
    asked: list[tuple[dict[str, str], Any]] = [({"path": trick}, b"x"), ({}, form)]
    for params, data in asked:
        async with api.client.post(
            "/files", params=params, data=data, headers=api.headers(made)
        ) as response:
            assert response.status in (200, 400, 401), await response.text()
            if response.status == 200:
                (stored,) = await response.json()
                assert stored["path"].startswith("/")
                assert not {"", ".", ".."} & set(stored["path"].split("/")[1:])
                assert stored["path"] in api.guest(made).files.found


@pytest.mark.soak  # twenty streams of test_guest.py show the same
async def test_200_idle_streams_and_200_half_requests_hold_nobody_up(api: Api) -> None:
    made = await api.create()
    url = api.client.make_url("/process.Process/Start")
    headers = {**api.headers(made), "Content-Type": "application/connect+json"}
    value = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "sleep"]}, "stdin": False}
    connector = aiohttp.TCPConnector(limit=0)
    halves = [await asyncio.open_connection(url.host, url.port) for _ in range(200)]
    for number, (_, writer) in enumerate(halves):
        writer.write(b"POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\n"[: 10 + number % 40])
    async with aiohttp.ClientSession(connector=connector) as session:
        held = [await session.post(url, data=envelope(value), headers=headers) for _ in range(200)]
        for response in held:
            await next_message(response)

        assert (await api.rpc(made, "filesystem.Filesystem/Stat", {"path": "/etc"})).status == 200
        assert (await api.call("GET", "/v2/sandboxes")).status == 200
        assert len(await api.run(made, "echo hi")) == 4
        for response in held:
            response.close()
    for _, writer in halves:
        writer.close()
    await until(lambda: not api.sandboxes.find(made["sandboxID"])._in_use)  # type: ignore[union-attr]


async def test_a_client_that_reads_nothing_is_cut_off(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "SLOW_S", 0.2)
    monkeypatch.setattr(fanout, "STALLED_S", 0.2)
    made = await api.create()
    url = api.client.make_url("/process.Process/Start")
    body = envelope({"process": {"cmd": "/bin/bash", "args": ["flood 2000"]}, "stdin": False})
    # 64 KiB of its answer are taken by this end, and what the kernel's buffers take.
    _, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    head = {**api.headers(made), "Content-Type": "application/connect+json",
            "Content-Length": str(len(body)), "Host": "localhost"}  # fmt: skip
    lines = "".join(f"{name}: {text}\r\n" for name, text in head.items())
    writer.write(f"POST {url.path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
    await until(lambda: api.guest(made).commands)
    (command,) = api.guest(made).commands.values()

    await until(lambda: command.status is not None)
    live = api.sandboxes.find(made["sandboxID"])
    await until(lambda: not live._in_use)  # type: ignore[union-attr]
    assert (await api.rpc(made, "process.Process/List", {})).status == 200
    writer.close()


async def test_a_body_that_does_not_come_is_not_waited_for(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "BODY_S", 0.1)

    async def slowly() -> Any:
        yield json.dumps({"templateID": "base"}).encode()[:5]
        await asyncio.sleep(30)

    response = await api.client.post("/v2/sandboxes", data=slowly(), headers={"X-API-KEY": api.key})
    assert response.status == 408
    assert api.machines.calls == []


async def test_a_client_that_has_left_is_no_fault_of_the_server() -> None:
    async def leaves(request: web.Request) -> web.StreamResponse:
        raise ConnectionResetError("Cannot write to closing transport")

    told: list[str] = []
    request = make_mocked_request("GET", "/files", headers={"Host": "127.0.0.1"})
    gate = middleware(frozenset(), lambda *_: leaves(request), told.append)

    assert (await gate(request, leaves)).status == LEFT
    assert request.transport is not None
    request.transport.abort.assert_called_once()  # type: ignore[attr-defined]
    assert not told
