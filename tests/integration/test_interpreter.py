"""The image with the code interpreter: built, and used through `quicksand-tui api`. What needs no
kernel is tested in tests/unit/interpreter and tests/unit/api."""

from __future__ import annotations

import base64
import json
from typing import Any

import aiohttp
import pytest
from quicksand.base.paths import Paths
from quicksand.disks.images.image_store import ImageStore
from quicksand_images.build import ensure_image

from tests.integration.api_client import Box, Server
from tests.integration.test_api import server

__all__ = ["server"]

pytestmark = [pytest.mark.vm, pytest.mark.soak, pytest.mark.timeout(3600)]


async def post(box: Box, code: str, **more: Any) -> aiohttp.ClientResponse:
    headers = {**box.headers, "E2b-Sandbox-Port": "49999"}
    url = box.server.url + "/execute"
    timeout = aiohttp.ClientTimeout(total=600)
    return await box.server.session.post(
        url, json={"code": code, **more}, headers=headers, timeout=timeout
    )


async def run(box: Box, code: str, **more: Any) -> list[dict[str, Any]]:
    """The lines of a cell, without the first and the last."""
    async with await post(box, code, **more) as response:
        assert response.status == 200, await response.text()
        lines = [json.loads(line) async for line in response.content]
    assert lines[0]["type"] == "number_of_executions"
    assert lines[-1] == {"type": "end_of_execution"}
    return lines[1:-1]


async def text_of(box: Box, code: str, **more: Any) -> str:
    (line,) = await run(box, code, **more)
    text: str = line.get("text", line)
    return text


async def call(box: Box, method: str, path: str, value: object = None) -> Any:
    headers = {**box.headers, "E2b-Sandbox-Port": "49999"}
    async with box.server.session.request(
        method, box.server.url + path, json=value, headers=headers
    ) as response:
        text = await response.text()
        assert response.status in (200, 204), text
        return json.loads(text) if text else None


async def test_cells_run_in_the_image_that_its_recipe_makes(places: Paths, server: Server) -> None:
    await ensure_image("code-interpreter", store=ImageStore(places.images))
    box = await server.create("code-interpreter-v1", envVars={"FROM": "sandbox"})

    assert await run(box, "import os; x = 1") == []
    assert await text_of(box, "x + 1") == "2"
    where = "os.getcwd(), os.environ['FROM'], os.environ.get('A')"
    assert await text_of(box, where, env_vars={"A": "cell"}) == (
        "('/home/user', 'sandbox', 'cell')"
    )
    assert await text_of(box, "str(os.environ.get('A'))") == "None"
    (error,) = await run(box, "1/0")
    assert (error["type"], error["name"]) == ("error", "ZeroDivisionError")
    (table,) = await run(box, "import pandas; pandas.DataFrame({'a': [1, None]})")
    assert table["data"] == {"a": [1, None]}
    assert "<table" in table["html"]
    plot = await run(box, "import matplotlib.pyplot as p; p.plot([1, 2]); p.show()")
    assert base64.b64decode(plot[-1]["png"]).startswith(b"\x89PNG")

    context = await call(box, "POST", "/contexts", {"cwd": "/tmp"})
    assert await text_of(box, "import os; os.getcwd()", context_id=context["id"]) == "/tmp"
    (unknown,) = await run(box, "x", context_id=context["id"])
    assert unknown["name"] == "NameError"
    await call(box, "POST", f"/contexts/{context['id']}/restart")
    (gone,) = await run(box, "os", context_id=context["id"])
    assert gone["name"] == "NameError"
    (ended,) = await run(box, "import os; os._exit(1)", context_id=context["id"])
    assert ended["name"] == "KernelGone"
    await call(box, "DELETE", f"/contexts/{context['id']}")

    endless = await post(box, "while True: print('on')")
    while b"on" not in await endless.content.readline():
        pass
    endless.close()
    assert await text_of(box, "x") == "1", "it was interrupted, and the kernel lives"

    assert (await box.call("POST", "/pause"))[0] == 204
    assert (await box.call("POST", "/connect", {"timeout": 600}))[0] in (200, 201)
    assert await text_of(box, "x") == "1"
    forks = (await box.call("POST", "/fork", {"count": 1}))[1]
    fork = Box(server, forks[0]["sandbox"])
    assert await text_of(fork, "x += 1; x") == "2"
    assert await text_of(box, "x") == "1"

    assert (await box.call("POST", "/pause", {"memory": False}))[0] == 204
    assert (await box.call("POST", "/connect", {"timeout": 600}))[0] in (200, 201)
    assert await text_of(box, "__import__('os').environ['FROM']") == "sandbox", "it starts anew"
