"""A sandbox on whatever event loop Python has: uvloop, a second one, two at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from quicksand import Sandbox
from quicksand.errors import StateError

pytestmark = pytest.mark.vm

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def runners() -> dict[str, Run]:
    found: dict[str, Run] = {"asyncio": asyncio.run}
    try:
        import uvloop
    except ImportError:
        return found
    return {**found, "uvloop": uvloop.run}


async def say(sandbox: Sandbox, word: str) -> str:
    return (await sandbox.execute(f"echo {word}")).stdout.strip()


async def begin(sandbox: Sandbox) -> None:
    await sandbox.start()
    assert await say(sandbox, "one") == "one"
    await sandbox.checkpoint("first")
    await sandbox.revert("first")


async def go_on(sandbox: Sandbox) -> None:
    said = await asyncio.gather(*(say(sandbox, word) for word in "abcd"))
    assert said == [*"abcd"]
    await sandbox.checkpoint("second")
    await sandbox.revert("first")
    assert await say(sandbox, "two") == "two"


# An event loop that ends warns of the connections that it leaves: they are closed with it, or by
# the garbage collector. (Where the warning is an error, uvloop waits for them for ever.)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("name", runners())
def test_each_run_of_an_event_loop_goes_on_with_the_sandbox_of_the_one_before(name: str) -> None:
    run = runners()[name]
    sandbox = Sandbox(image="debian", name=f"loops-{name}")
    try:
        run(begin(sandbox))
        run(go_on(sandbox))
        run(_used_elsewhere(sandbox))
    finally:
        run(sandbox.stop())
    assert not sandbox.is_running
    gc.collect()


async def _used_elsewhere(sandbox: Sandbox) -> None:
    """Another loop that runs at the same time is refused at once, in words."""
    assert await say(sandbox, "three") == "three"
    errors: list[BaseException] = []

    def use() -> None:
        try:
            asyncio.run(say(sandbox, "x"))
        except StateError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "on another event loop, which still runs" in str(errors[0])
    assert await say(sandbox, "four") == "four"
