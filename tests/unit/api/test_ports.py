"""Ports of a guest by name and by path, with a service on this host in place of one in a guest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from quicksand import AgentRefusedError

from tests.unit.api.fakes import Api


class Connection:
    """What `Sandbox.dial` gives, by TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(65536)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def write_eof(self) -> None:
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def __aenter__(self) -> Connection:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()


async def _echo(request: web.Request) -> web.StreamResponse:
    if request.headers.get("Upgrade", "").lower() == "websocket":
        ws = web.WebSocketResponse(protocols=("chat",))
        await ws.prepare(request)
        async for message in ws:
            if message.data == "bye":
                await ws.close(code=4000)
            elif message.type is aiohttp.WSMsgType.TEXT:
                await ws.send_str(message.data.upper())
            else:
                await ws.send_bytes(message.data[::-1])
        return ws
    body = await request.read()
    told = {"path": request.raw_path, "body": len(body), "headers": dict(request.headers)}
    return web.json_response(told, status=207, headers={"X-From": "guest", "Set-Cookie": "a=b"})


@pytest.fixture
async def made(api: Api) -> AsyncIterator[dict[str, Any]]:
    """A sandbox in which something listens at port 8000."""
    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{rest:.*}", _echo)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def dial(asked: int) -> Connection:
        if asked != 8000:
            raise AgentRefusedError("connection refused", code="unavailable", errno=111)
        return Connection(*await asyncio.open_connection("127.0.0.1", port))

    found = await api.create()
    api.guest(found).dial = dial  # type: ignore[attr-defined]
    yield found
    await runner.cleanup()


async def test_a_port_is_reached_by_name_and_by_path(api: Api, made: dict[str, Any]) -> None:
    id_ = made["sandboxID"]
    by_host = {"Host": f"8000-{id_}.qs.localhost:3000", "Connection": "X-Mine", "X-Mine": "x"}
    answer = await api.client.post("/files/%2Fx?q=a%20b", data=b"hello", headers=by_host)
    told = await answer.json()
    assert (answer.status, told["path"], told["body"]) == (207, "/files/%2Fx?q=a%20b", 5)
    assert answer.headers["X-From"] == "guest"
    assert answer.headers["Set-Cookie"] == "a=b"
    assert "X-Mine" not in told["headers"]
    assert told["headers"]["Host"].startswith("8000-")

    for path, wanted in (
        ("", "/"),
        ("/", "/"),
        ("/sandboxes?x=1", "/sandboxes?x=1"),
        ("?y", "/?y"),
    ):
        answer = await api.client.get(f"/ports/8000-{id_}{path}")
        assert (await answer.json())["path"] == wanted

    by_headers = {"E2b-Sandbox-Id": id_, "E2b-Sandbox-Port": "8000"}
    assert (await api.client.get("/health", headers=by_headers)).status == 207


async def test_a_port_at_which_nobody_listens_is_told(api: Api, made: dict[str, Any]) -> None:
    id_ = made["sandboxID"]
    closed = await api.client.get(f"/ports/8001-{id_}/")
    assert closed.status == 502
    told = await closed.json()
    assert told["message"] == "The sandbox is running but port is not open"
    for path in ("8000-i123", "8000", "0-" + id_, "99999-" + id_, "x-y", "8000-../../x"):
        assert (await api.client.get(f"/ports/{path}")).status in (400, 404, 502)


async def test_large_bodies_go_through(api: Api, made: dict[str, Any]) -> None:
    async def body() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"x" * 65536

    answer = await api.client.put(f"/ports/8000-{made['sandboxID']}/", data=body())
    assert (await answer.json())["body"] == 6553600


async def test_websockets_pass(api: Api, made: dict[str, Any]) -> None:
    path = f"/ports/8000-{made['sandboxID']}/ws"
    async with api.client.ws_connect(path, protocols=("other", "chat"), compress=15) as ws:
        assert ws.protocol == "chat"
        assert not ws.compress, "messages would be unpacked on the event loop"
        await ws.send_str("hello")
        assert await ws.receive_str() == "HELLO"
        await ws.send_bytes(b"abc")
        assert await ws.receive_bytes() == b"cba"
        await ws.send_str("bye")
        assert (await ws.receive()).type is aiohttp.WSMsgType.CLOSE
        assert ws.close_code == 4000


async def test_what_is_not_public_wants_the_token_for_it(api: Api, made: dict[str, Any]) -> None:
    private = await api.create(network={"allowPublicTraffic": False})
    api.guest(private).dial = api.guest(made).dial  # type: ignore[attr-defined]
    path = f"/ports/8000-{private['sandboxID']}/"
    assert (await api.client.get(path)).status == 403
    wrong = {"E2b-Traffic-Access-Token": made["trafficAccessToken"]}
    assert (await api.client.get(path, headers=wrong)).status == 403
    right = {"E2b-Traffic-Access-Token": private["trafficAccessToken"]}
    answer = await api.client.get(path, headers=right)
    assert answer.status == 207
    assert "E2b-Traffic-Access-Token" not in (await answer.json())["headers"]


async def test_a_masked_host_takes_the_place_of_that_of_the_request(
    api: Api, made: dict[str, Any]
) -> None:
    mask = "custom.example.com:${PORT}"
    other = await api.create(network={"maskRequestHost": mask})
    api.guest(other).dial = api.guest(made).dial  # type: ignore[attr-defined]
    answer = await api.client.get(f"/ports/8000-{other['sandboxID']}/")
    assert (await answer.json())["headers"]["Host"] == "custom.example.com:8000"
    told = await (await api.call("GET", f"/sandboxes/{other['sandboxID']}")).json()
    assert told["network"] == {"maskRequestHost": mask}
