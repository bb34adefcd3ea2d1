"""Changes of a screen, and its rest."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest
from quicksand_vnc import AskedError
from quicksand_vnc.client import VncClient
from quicksand_vnc.watching import Watch

from tests.unit.vnc.fake_vnc import FakeVnc, filled, resized, serve, update

RED, GREEN = b"\xff\0\0\0", b"\0\xff\0\0"


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "vnc.sock"


async def test_only_other_pixels_of_the_region_are_a_change(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        first, elsewhere = filled(0, 0, 4, 4, RED), filled(3, 3, 1, 1, GREEN)
        for rect in (first, first, elsewhere, filled(0, 0, 1, 1, GREEN)):
            await server.reader.readuntil(b"\0\4\0\4")  # the end of a request
            server.send(update(rect))

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.next_update()
        await Watch(client, (0, 0, 3, 3)).change()
        assert client.frame.pixels.startswith(GREEN)


async def test_rest(socket: Path) -> None:
    colours = cycle((GREEN, RED))

    async def script(server: FakeVnc) -> None:
        await server.greet(1, 1)
        for _ in range(10):
            server.send(update(filled(0, 0, 1, 1, next(colours))))

    async with serve(socket, script), VncClient.open(socket) as client:
        await client.next_update()
        await Watch(client).rest(0.05)
        assert client.frame.pixels == RED


async def test_a_region_that_is_not_there_or_goes_with_the_size(socket: Path) -> None:
    async def script(server: FakeVnc) -> None:
        await server.greet(4, 4)
        server.send(update(resized(2, 2)) + update(filled(0, 0, 2, 2, RED)))

    async with serve(socket, script), VncClient.open(socket) as client:
        with pytest.raises(AskedError, match="not within the screen"):
            Watch(client, (0, 0, 5, 1))
        watch = Watch(client, (0, 0, 4, 4))
        with pytest.raises(AskedError, match="not within the screen"):
            await watch.change()
