"""The port of the code interpreter, with a service on this host in place of the one in a guest."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from quicksand import AgentRefusedError
from quicksand.guest.execution import ExecuteResult
from quicksand_e2b.interpreter import ABSENT, IMAGE, PORT, TEMPLATE

from tests.unit.api.fakes import Api, FakeGuest, until
from tests.unit.api.test_ports import Connection


class InGuest:
    """What a guest does: it starts the interpreter, unless its image has none."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.is_up = False
        self.exit_code = 0
        self.commands: list[str] = []
        self.told: list[Any] = []
        self.left = asyncio.Event()

    def install(self, guest: FakeGuest) -> None:
        guest.dial = self._dial  # type: ignore[attr-defined]
        guest.execute = self._execute  # type: ignore[attr-defined]

    async def _dial(self, port: int) -> Connection:
        assert port == PORT
        if not self.is_up:
            raise AgentRefusedError("refused", code="unavailable", errno=errno.ECONNREFUSED)
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))

    async def _execute(self, command: str, *, timeout: float) -> ExecuteResult:
        self.commands.append(command)
        self.is_up = self.exit_code == 0
        return ExecuteResult(stdout="", stderr="it says why", exit_code=self.exit_code)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "PUT":
            self.told.append(await request.json())
            return web.Response(status=204)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            await response.write(b'{"type": "stdout"}\n')
            if (await request.json())["code"] == "sleep":
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.left.set()
            raise
        return response


@pytest.fixture
async def inside() -> AsyncIterator[InGuest]:
    app = web.Application()
    runner = web.AppRunner(app, handler_cancellation=True)
    found = InGuest(0)
    app.router.add_route("*", "/{rest:.*}", found.answer)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


def headers_of(made: dict[str, Any]) -> dict[str, str]:
    return {
        "E2b-Sandbox-Id": made["sandboxID"],
        "E2b-Sandbox-Port": str(PORT),
        "X-Access-Token": made["envdAccessToken"],
    }


async def execute(api: Api, made: dict[str, Any], code: str = "1") -> tuple[int, str]:
    body = json.dumps({"code": code})
    answer = await api.client.post("/execute", data=body, headers=headers_of(made))
    return answer.status, await answer.text()


async def test_the_interpreter_is_started_once_and_told_the_variables(
    api: Api, inside: InGuest
) -> None:
    made = await api.create(envVars={"A": "b"})
    inside.install(api.guest(made))

    answers = await asyncio.gather(*(execute(api, made) for _ in range(3)))

    assert answers == [(200, '{"type": "stdout"}\n')] * 3
    assert len(inside.commands) == 1
    [told] = inside.told
    assert (told["A"], told["E2B_SANDBOX_ID"]) == ("b", made["sandboxID"])
    inside.is_up = False
    assert (await execute(api, made))[0] == 200, "one that has ended is started anew"
    assert len(inside.commands) == len(inside.told) == 2


async def test_who_has_no_token_runs_nothing(api: Api, inside: InGuest) -> None:
    made = await api.create()
    inside.install(api.guest(made))
    address = {name: text for name, text in headers_of(made).items() if name != "X-Access-Token"}
    for more in ({}, {"X-Access-Token": "x"}, {"E2b-Traffic-Access-Token": "x"}):
        assert (await api.client.get("/contexts", headers={**address, **more})).status == 403
    by_path = await api.client.get(f"/ports/{PORT}-{made['sandboxID']}/contexts")
    assert by_path.status == 403
    assert inside.commands == []
    traffic = {**address, "E2b-Traffic-Access-Token": made["trafficAccessToken"]}
    assert (await api.client.put("/x", headers=traffic, json={})).status == 204


@pytest.mark.parametrize(
    ("exit_code", "status", "why"), [(ABSENT, 501, "images build"), (1, 500, "it says why")]
)
async def test_a_guest_that_has_none_or_cannot_start_it_says_so(
    api: Api, inside: InGuest, exit_code: int, status: int, why: str
) -> None:
    made = await api.create()
    inside.install(api.guest(made))
    inside.exit_code = exit_code
    told = await execute(api, made)
    assert told[0] == status
    assert why in told[1]


async def test_a_client_that_leaves_is_seen_in_the_guest(api: Api, inside: InGuest) -> None:
    made = await api.create()
    inside.install(api.guest(made))
    body = json.dumps({"code": "sleep"})
    answer = await api.client.post("/execute", data=body, headers=headers_of(made))
    await answer.content.readline()
    answer.close()
    async with asyncio.timeout(60):
        await inside.left.wait()


async def test_the_template_is_the_image_with_the_interpreter(api: Api, inside: InGuest) -> None:
    response = await api.call("POST", "/v2/sandboxes", {"templateID": TEMPLATE})
    assert response.status == 404
    assert f"images build {IMAGE}" in (await response.json())["message"]
    assert (await api.call("GET", f"/templates/aliases/{TEMPLATE}")).status == 404
    assert not list(api.sandboxes)

    api.machines.images.add(IMAGE)
    api.machines.prepare = inside.install
    assert (await api.call("GET", f"/templates/aliases/{TEMPLATE}")).status == 200
    await api.create(templateID=TEMPLATE)
    assert api.machines.calls == [("start", IMAGE)]
    await until(lambda: len(inside.told) == 1)
