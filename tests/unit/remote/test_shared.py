"""A shared connection lasts as long as somebody uses it, and no longer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from quicksand.base.errors import RemoteError
from quicksand.remote import connection
from quicksand.remote.destination import Destination


class Lost:
    """A connection that has broken, to a machine that does not come back."""

    made: list[Lost]

    def __init__(self, *_: object, **__: object) -> None:
        self.link = SimpleNamespace(ended=asyncio.Event())
        self.is_trying, self.is_closed = asyncio.Event(), False
        self.given_up = False
        self.made.append(self)

    async def open(self) -> None: ...

    async def again(self, error: RemoteError, *, told: Any) -> bool:
        self.is_trying.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.given_up = True
        return True

    async def close(self) -> None:
        self.is_closed = True


async def test_a_machine_that_is_lost_is_not_waited_for_once_nobody_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Lost.made = []
    monkeypatch.setattr(connection, "Connection", Lost)
    found = connection.SharedConnection(Destination.parse("ssh://box"), asks=False)
    async with asyncio.timeout(60):
        with found.use():
            await found.link()
            [lost] = Lost.made
            lost.link.ended.set()
            await lost.is_trying.wait()
            assert not lost.given_up
        await found.ended()
    assert lost.given_up and lost.is_closed
    assert not found.is_alive
