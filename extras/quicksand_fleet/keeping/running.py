"""Whether a coordinator runs, and starting one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from quicksand.extending import Paths, is_locked, run_later

from quicksand_fleet.keeping.book import Book

PROCESS = "quicksand_fleet.keeping.process"
END_S, LOOK_S = 15.0, 0.1
"""Seconds for a coordinator to end, and between two looks."""


def lock_of(paths: Paths) -> Path:
    """The file that the coordinator holds locked."""
    return Book(paths).place / ".coordinator.lock"


def is_running(paths: Paths) -> bool:
    """Whether there is a coordinator. Blocks."""
    return lock_of(paths).exists() and is_locked(lock_of(paths))


async def ensure_coordinator(paths: Paths) -> None:
    """Start a coordinator if something is kept and there is none. Raises OSError."""
    if await asyncio.to_thread(_is_needed, paths):
        await run_later(PROCESS, {})


def _is_needed(paths: Paths) -> bool:
    return any(Book(paths).place.glob("*.json")) and not is_running(paths)


async def await_end(paths: Paths) -> bool:
    """Wait until there is no coordinator, and return whether that is so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + END_S
    while await asyncio.to_thread(is_running, paths):
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(LOOK_S)
    return True
