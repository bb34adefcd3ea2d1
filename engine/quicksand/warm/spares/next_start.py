"""Preparing the next start: after a start from a template (or with a spare), a background process
makes a spare for the next one of the same kind (`maker`)."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from quicksand.base.background import run_later
from quicksand.base.effort import best_effort
from quicksand.base.files import map_os_errors, try_lock
from quicksand.base.paths import Paths
from quicksand.base.progress import BootTiming
from quicksand.base.settings import SPARES, USE
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.orders import Orders, digest_of
from quicksand.warm.spares.spare import has_spares, is_off

AFTER_S = 3
"""Seconds to wait after a start, so that the user's first actions come first."""

MAKER = "quicksand.warm.spares.maker"
MODES = ("template", "spare")

ORDERS = "orders"
"""The part of a lock's name that replaces the digest of one machine."""


def may_take(paths: Paths) -> bool:
    """Whether a start may find a spare. Blocks for I/O."""
    return not is_off() and has_spares(paths)


async def expect_next(registry: Registry, record: Record, timing: BootTiming) -> None:
    """Have a spare made in the background for the next start like that of ``record``, and the
    ordered ones. A start that has booted gets no spare, for there is no template yet. Does nothing
    if a process is about to do that already. Its errors are not reported."""
    if makes_none():
        return
    if timing.mode in MODES:
        await _run_maker(registry.paths, digest_of(record.config), record.to_json())
    elif await asyncio.to_thread(Orders(registry.paths).list):
        await restock_later(registry.paths)


async def restock_later(paths: Paths) -> None:
    """Have the ordered spares made, with the templates that they need, as `expect_next` does."""
    if not makes_none():
        await _run_maker(paths, ORDERS, None)


def makes_none() -> bool:
    """Whether the user has turned off making spares in the background."""
    return bool(is_off()) or SPARES.read() == USE


async def _run_maker(paths: Paths, of: str, value: Any) -> None:
    """Start the program; it holds the lock ``of`` its spares."""
    with best_effort("have spares made", paths.engine_log):
        lock = await asyncio.to_thread(_lock, paths, of)
        if lock is None:
            return
        try:
            await run_later(MAKER, value, seconds=AFTER_S, descriptors=(lock,))
        finally:
            os.close(lock)


def _lock(paths: Paths, of: str) -> int | None:
    """Take the lock of the maker of spares ``of`` one kind of machine; None if there is a maker."""
    path = paths.sandboxes / f".spares-{of}.lock"
    with map_os_errors(path):
        return try_lock(path)
