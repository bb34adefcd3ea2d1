"""What anybody on the host may send without a key: many connections that say nothing, and packed
bodies. Nobody else is held up by them."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from quicksand.base.paths import Paths
from quicksand_e2b import connections
from quicksand_e2b.fields import BODY_MAX
from quicksand_e2b.keys import Keys
from quicksand_e2b.places import api_dir
from quicksand_e2b.server import Options, serving

from tests.each import each
from tests.unit.api.fakes import USUAL, Api
from tests.unit.api.test_hostile import routes

BOMB = gzip.compress(bytes(32 * BODY_MAX))
WAIT_S = 60.0


class Unpackings:
    """Counts what zlib unpacks, by thread."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: dict[int, int] = {}
        self._make = zlib.decompressobj
        monkeypatch.setattr(zlib, "decompressobj", self._watched)

    def _watched(self, *args: Any, **kwargs: Any) -> Any:
        return _Watched(self._make(*args, **kwargs), self.bytes)


class _Watched:
    def __init__(self, stream: Any, counted: dict[int, int]) -> None:
        self._stream, self._counted = stream, counted

    def decompress(self, *args: Any, **kwargs: Any) -> bytes:
        found: bytes = self._stream.decompress(*args, **kwargs)
        thread = threading.get_ident()
        self._counted[thread] = self._counted.get(thread, 0) + len(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


async def test_what_is_packed_is_unpacked_for_those_who_may_send_it_and_never_on_the_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await api.create()
    found = Unpackings(monkeypatch)
    packed = {"Content-Encoding": "gzip"}
    for method, route in routes(api):
        path = route.replace("{}", made["sandboxID"])
        for secret in ({}, {"X-API-KEY": "x"}, {"E2b-Sandbox-Id": made["sandboxID"]}):
            headers = {**packed, **secret}
            async with api.client.request(method, path, data=BOMB, headers=headers) as response:
                await response.read()
        assert found.bytes == {}, (method, path)

    headers = {**packed, "X-API-KEY": api.key}
    response = await api.client.post("/v2/sandboxes", data=BOMB, headers=headers)
    assert response.status == 413
    assert sum(found.bytes.values()) <= 2 * BODY_MAX  # no more than it takes to see that
    response = await api.client.post(
        "/files", params={"path": "big"}, data=BOMB, headers={**packed, **api.headers(made)}
    )
    assert response.status == 200
    assert api.guest(made).files.found["/home/user/big"] == bytes(32 * BODY_MAX)
    assert threading.get_ident() not in found.bytes


@each(
    ("coding", "body", "status"),
    [
        ("gzip", gzip.compress(b"text")[:-1], 400),
        ("gzip", gzip.compress(b"text") + b"x", 400),
        ("gzip", b"text", 400),
        ("gzip", b"", 400),
        ("deflate", zlib.compress(b"text"), 415),
        ("br", b"text", 415),
        ("gzip, gzip", gzip.compress(gzip.compress(b"text")), 415),
        ("identity", b"text", 200),
        ("GZIP", gzip.compress(b"text"), 200),
    ],
)
async def test_a_body_that_is_not_packed_as_it_says_is_refused(
    api: Api, coding: str, body: bytes, status: int
) -> None:
    made = await api.create()
    headers = {**api.headers(made), "Content-Encoding": coding}
    response = await api.client.post("/files", params={"path": "f"}, data=body, headers=headers)
    assert response.status == status, await response.text()
    if status == 415:  # nothing was begun
        assert "/home/user/f" not in api.guest(made).files.found


@contextlib.asynccontextmanager
async def _served(tmp_path: Path) -> AsyncIterator[tuple[tuple[str, int], str]]:
    paths = Paths(runtime=tmp_path / "run", data=tmp_path / "data", cache=tmp_path / "cache")
    paths.data.mkdir()
    key = Keys(api_dir(paths)).require().key
    options = Options(host="127.0.0.1", port=0, usual=USUAL)
    async with serving(paths, options, lambda text: None) as address:
        yield address, key


async def _ends(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(WAIT_S):
        try:
            return await reader.read()
        except ConnectionError:
            return b""


async def test_connections_that_say_nothing_end_and_are_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SILENT_MAX", 4)
    monkeypatch.setattr(connections, "SILENT_S", 3600.0)
    async with _served(tmp_path) as (address, key), contextlib.AsyncExitStack() as stack:

        async def connect(said: bytes = b"") -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(*address)
            stack.callback(writer.close)
            writer.write(said)
            return reader

        many = [await connect(b"GET / HTT" if n % 2 else b"") for n in range(10)]
        for reader in many[:6]:  # the oldest make room
            assert await _ends(reader) == b""
        assert not any(reader.at_eof() for reader in many[6:])

        monkeypatch.setattr(connections, "SILENT_S", 0.1)
        assert await _ends(await connect()) == b""
        assert await _ends(await connect(b"POST / HTTP/1.1\r\nHost: local")) == b""

        # One that was granted what it asked for stays, and is not one of the few.
        monkeypatch.setattr(connections, "SILENT_S", 3600.0)
        asked = f"GET /sandboxes HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: {key}\r\n\r\n".encode()
        reader, writer = await asyncio.open_connection(*address)
        stack.callback(writer.close)
        for _ in range(2):
            writer.write(asked)
            async with asyncio.timeout(WAIT_S):
                assert (await reader.readuntil(b"[]")).startswith(b"HTTP/1.1 200")
            for _ in range(6):
                await connect()


async def test_a_refusal_closes_the_connection(tmp_path: Path) -> None:
    async with _served(tmp_path) as (address, _):
        url = f"http://{address[0]}:{address[1]}"
        async with aiohttp.ClientSession() as session:
            for method, path, host in (
                ("POST", "/v2/sandboxes", "localhost"),
                ("POST", "/files", "localhost"),
                ("GET", "/nowhere", "localhost"),
                ("GET", "/sandboxes", "stranger.example"),
            ):
                headers = {"Host": host}
                async with session.request(
                    method, url + path, data=b"x" * 100_000, headers=headers
                ) as response:
                    assert response.status >= 400
                    assert response.headers["Connection"] == "close", path
