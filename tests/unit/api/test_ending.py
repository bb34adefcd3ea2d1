"""The end of the server, for those who come just before it."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest
from quicksand.base.errors import PortInUseError
from quicksand.base.paths import Paths
from quicksand_e2b.server import Options, serving

from tests.unit.api.fakes import USUAL


@pytest.mark.parametrize("rounds", range(6))
async def test_who_comes_just_before_the_end_is_not_kept_waiting(
    places: Paths, rounds: int
) -> None:
    loop = asyncio.get_running_loop()
    options = Options(host="127.0.0.1", port=0, usual=USUAL)
    async with serving(places, options, lambda _: None) as address:
        client = socket.create_connection(address)
        client.setblocking(False)
        for _ in range(rounds):  # of the event loop, in which it is taken step by step
            await asyncio.sleep(0)
    with client:
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                assert await loop.sock_recv(client, 1) == b""


async def test_a_port_that_others_have_is_named(places: Paths) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = Options(host="127.0.0.1", port=port, usual=USUAL)
        with pytest.raises(PortInUseError, match=f"127.0.0.1:{port}"):
            async with serving(places, options, lambda _: None):
                pass
