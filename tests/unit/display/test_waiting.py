"""Waiting for the screen to change, and for it to come to rest."""

from __future__ import annotations

import asyncio
from itertools import cycle
from pathlib import Path

import pytest
from quicksand.display.rfb import RfbClient
from quicksand.display.waiting import Until, wait_for
from quicksand.errors import ConfigError, DisplayTimeoutError

from tests.unit.display.fake_vnc import FakeVnc, Script, filled, resized, serve, update

RED, GREEN = b"\xff\0\0\0", b"\0\xff\0\0"
FIRST = update(filled(0, 0, 4, 4, RED))

Region = tuple[int, int, int, int]


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "vnc.sock"


def shows(*messages: bytes) -> Script:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        for message in (FIRST, *messages):
            server.send(message)
            await asyncio.sleep(0)

    return script


async def wait(
    socket: Path, until: Until, script: Script, *, region: Region | None = None, timeout: float = 10
) -> None:
    async with serve(socket, script), RfbClient.open(socket) as client:
        await wait_for(client, until, timeout_s=timeout, quiet_s=0.05, region=region)


async def test_a_change(socket: Path) -> None:
    go = asyncio.Event()

    async def script(server: FakeVnc) -> None:
        await shows()(server)
        await go.wait()
        server.send(update(filled(3, 3, 1, 1, GREEN)))

    async with serve(socket, script), RfbClient.open(socket) as client:
        waiting = asyncio.ensure_future(
            wait_for(client, Until.CHANGE, timeout_s=10, quiet_s=0, region=None)
        )
        while not client.frame.pixels.startswith(RED):
            await asyncio.sleep(0)
        go.set()
        await waiting


async def test_the_same_again_is_no_change(socket: Path) -> None:
    with pytest.raises(DisplayTimeoutError, match=r"did not change within 0\.1 s"):
        await wait(socket, Until.CHANGE, shows(FIRST, FIRST), timeout=0.1)


async def test_a_change_elsewhere_is_none(socket: Path) -> None:
    elsewhere = update(filled(3, 3, 1, 1, GREEN))
    with pytest.raises(TimeoutError):
        await wait(socket, Until.CHANGE, shows(elsewhere), region=(0, 0, 3, 3), timeout=0.1)


async def test_what_comes_to_rest(socket: Path) -> None:
    await wait(socket, Until.STABLE, shows(update(filled(0, 0, 1, 1, GREEN))))


async def test_what_never_comes_to_rest(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        await server.expect_request(4, 4, incremental=False)
        server.send(FIRST)
        for colour in cycle((GREEN, RED)):
            await server.expect_request(4, 4, incremental=True)
            server.send(update(filled(0, 0, 1, 1, colour)))

    with pytest.raises(DisplayTimeoutError, match="did not come to rest"):
        await wait(socket, Until.STABLE, script, timeout=0.3)


async def test_a_region_that_is_not_there(socket: Path) -> None:
    with pytest.raises(ConfigError, match="not within the screen"):
        await wait(socket, Until.CHANGE, shows(), region=(0, 0, 5, 1))


async def test_a_region_that_goes_with_the_mode(socket: Path) -> None:
    smaller = update(resized(2, 2)) + update(filled(0, 0, 2, 2, RED))
    with pytest.raises(ConfigError, match="not within the screen"):
        await wait(socket, Until.CHANGE, shows(smaller), region=(0, 0, 4, 4))
