"""Forwards to a guest of another machine, without one."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import StateError
from quicksand.hosted import remote_parts
from quicksand.hosted.remote_parts import FarForwarding

from tests.each import each


@each("rounds", range(6))
async def test_no_connection_begins_after_its_forward_has_ended(
    rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[int] = []

    async def dial(port: int) -> Any:
        dialled.append(port)
        await asyncio.Event().wait()

    async def session() -> None:
        pass

    monkeypatch.setattr(remote_parts, "require_able", lambda *_: None)
    life: Any = SimpleNamespace(session=session, name="web")
    guest: Any = SimpleNamespace(dial=dial)
    forwards = FarForwarding(life, guest)
    made = await forwards.forward(80)
    assert forwards.ports == {80: made.host}
    loop = asyncio.get_running_loop()
    with socket.create_connection(("127.0.0.1", made.host)) as client:
        client.setblocking(False)
        for _ in range(rounds):  # of the event loop, in which it is taken step by step
            await asyncio.sleep(0)
        await forwards.unforward(made.host)
        begun = len(dialled)
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionError):
                assert await loop.sock_recv(client, 1) == b""
    assert len(dialled) == begun
    with pytest.raises(StateError, match="not forwarded"):
        await forwards.unforward(made.host)
