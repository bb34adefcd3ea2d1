"""A server of E2B's API in a process of its own, and a client that knows only the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from typing import Any

import aiohttp
from quicksand.base.paths import paths
from quicksand_e2b.keys import Keys
from quicksand_e2b.places import api_dir

from tests.unit.api.fakes import decode, envelope, next_message, text_of

STREAM = "application/connect+json"


class Server:
    """A server of its own process, which can be killed and started again."""

    def __init__(self, *options: str) -> None:
        """``options`` are further ones of `quicksand-tui api`."""
        self._options = options
        self.url = ""
        self.key = ""
        self._process: asyncio.subprocess.Process | None = None
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120))

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "quicksand_tui", "api", "--listen", "127.0.0.1:0"),
            *self._options,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(60):
            line = (await self._process.stdout.readline()).decode()
        found = re.search(r"http://\S+:\d+", line)
        assert found is not None, line + (await self._process.stdout.read()).decode()
        self.url = found[0]
        self.key = Keys(api_dir(paths())).require().key

    async def end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            os.kill(self._process.pid, number)
            async with asyncio.timeout(60):
                await self._process.communicate()

    async def call(self, method: str, path: str, value: object = None) -> tuple[int, Any]:
        headers = {"X-API-KEY": self.key}
        async with self.session.request(method, self.url + path, json=value, headers=headers) as r:
            text = await r.text()
            return r.status, json.loads(text) if text else None

    async def create(self, template: str = "base", **more: Any) -> Box:
        status, made = await self.call("POST", "/v2/sandboxes", {"templateID": template, **more})
        assert status == 201, made
        return Box(self, made)


class Box:
    """A sandbox, by its answer."""

    def __init__(self, server: Server, made: dict[str, Any]) -> None:
        self.server = server
        self.id: str = made["sandboxID"]
        self.headers = {
            "E2b-Sandbox-Id": self.id,
            "E2b-Sandbox-Port": "49983",
            "X-Access-Token": made["envdAccessToken"],
        }

    async def rpc(self, name: str, value: object) -> tuple[int, Any]:
        url = f"{self.server.url}/{name}"
        async with self.server.session.post(url, json=value, headers=self.headers) as response:
            return response.status, await response.json()

    async def open(self, name: str, value: object) -> aiohttp.ClientResponse:
        headers = {**self.headers, "Content-Type": STREAM}
        url = f"{self.server.url}/{name}"
        return await self.server.session.post(url, data=envelope(value), headers=headers)

    async def start(self, script: str, **more: Any) -> tuple[int, aiohttp.ClientResponse]:
        value = {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", script]}, **more}
        response = await self.open("process.Process/Start", value)
        first = await next_message(response)
        assert "event" in first, first
        return first["event"]["start"]["pid"], response

    async def run(self, script: str, **more: Any) -> list[dict[str, Any]]:
        _, response = await self.start(script, **more)
        return decode(await response.read())

    async def output(self, script: str, **more: Any) -> str:
        return text_of(await self.run(script, **more))

    async def health(self) -> int:
        url = self.server.url + "/health"
        async with self.server.session.get(url, headers=self.headers) as response:
            return response.status

    async def write(self, path: str, content: bytes) -> None:
        url, params = self.server.url + "/files", {"path": path}
        async with self.server.session.post(
            url, params=params, data=content, headers=self.headers
        ) as response:
            assert response.status == 200, await response.text()

    async def read(self, path: str) -> bytes:
        url, params = self.server.url + "/files", {"path": path}
        async with self.server.session.get(url, params=params, headers=self.headers) as response:
            assert response.status == 200, await response.text()
            return await response.read()

    async def call(self, method: str, path: str = "", value: object = None) -> tuple[int, Any]:
        return await self.server.call(method, f"/sandboxes/{self.id}{path}", value)
