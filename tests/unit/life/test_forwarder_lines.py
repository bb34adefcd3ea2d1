"""Many connections over few clients of the agent."""

from __future__ import annotations

import asyncio
import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest
from quicksand.base.errors import StateError
from quicksand.life import forwarder
from quicksand.life.forwarder import LINES_MAX, PLACES, Lines


class Opened:
    """The clients that were opened."""

    def __init__(self) -> None:
        self.open = 0

    def __call__(self) -> Any:
        self.open += 1
        return SimpleNamespace(close=self.close)

    def close(self) -> None:
        self.open -= 1


async def hold(stack: contextlib.AsyncExitStack, lines: Lines, count: int) -> list[object]:
    return [await stack.enter_async_context(lines.place()) for _ in range(count)]


async def test_another_client_comes_when_one_is_full_and_goes_when_it_is_empty() -> None:
    opened = Opened()
    lines = Lines(cast("Any", opened))
    async with contextlib.AsyncExitStack() as all_:
        first = await hold(all_, lines, PLACES)
        assert opened.open == 1
        assert len(set(map(id, first))) == 1
        async with contextlib.AsyncExitStack() as more:
            (second,) = await hold(more, lines, 1)
            assert opened.open == 2
            assert second is not first[0]
        assert opened.open == 1
    assert opened.open == 1
    lines.close()
    assert opened.open == 0


async def test_who_finds_no_place_waits_for_one_and_is_refused_in_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = Lines(cast("Any", Opened()))
    async with contextlib.AsyncExitStack() as all_:
        await hold(all_, lines, LINES_MAX * PLACES - 1)
        async with contextlib.AsyncExitStack() as last:
            await hold(last, lines, 1)
            monkeypatch.setattr(forwarder, "PLACE_S", 0.01)
            with pytest.raises(StateError, match="connections are open"):
                await hold(all_, lines, 1)
            monkeypatch.undo()
            waiting = asyncio.create_task(hold(all_, lines, 1))
            await asyncio.sleep(0)
            assert not waiting.done()
        await waiting
