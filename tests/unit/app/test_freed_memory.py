"""What the app has freed goes back to the system."""

from __future__ import annotations

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from quicksand_tui.ui import load_rest
from tests.each import each


async def test_freed_memory_is_given_back_now_and_then_until_the_app_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[str, ...]] = []
    often = asyncio.Event()

    def trim(kept: int) -> None:
        asked.append(("trim", str(kept)))
        if len(asked) > 3:
            loop.call_soon_threadsafe(often.set)

    loop = asyncio.get_running_loop()
    library: Any = SimpleNamespace(
        mallopt=lambda name, value: asked.append(("few heaps", str(name), str(value))),
        malloc_trim=trim,
    )
    monkeypatch.setattr(load_rest, "_c_library", lambda: library)
    monkeypatch.setattr(load_rest, "EVERY_S", 0)
    task = asyncio.create_task(load_rest.give_back_for_ever())
    await asyncio.wait_for(often.wait(), 60)
    task.cancel()
    await asyncio.wait((task,))
    assert task.cancelled()
    assert asked[:2] == [("few heaps", "-8", "2"), ("trim", "0")]


class Circle:
    def __init__(self) -> None:
        self.itself = self


@each("has_library", [False, True])
async def test_what_was_closed_is_freed_if_much_was_made(
    monkeypatch: pytest.MonkeyPatch, has_library: bool
) -> None:
    if not has_library:
        monkeypatch.setattr(load_rest, "_c_library", lambda: None)
    monkeypatch.setattr(load_rest, "EVERY_S", 0.001)
    circle = Circle()
    gone = weakref.ref(circle)
    gc.collect()  # it is an old object now
    del circle
    task = asyncio.create_task(load_rest.give_back_for_ever())
    async with asyncio.timeout(60):
        while gone() is not None:
            gc.collect(0)  # as when many objects are made
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait((task,))


def test_this_systems_library_is_found_or_none_is() -> None:
    library = load_rest._c_library()
    assert library is None or library.malloc_trim(0) in (0, 1)
