"""The machine of a new sandbox: a spare that waits, or one that is started now."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from quicksand.base.effort import best_effort
from quicksand.base.errors import MemoryBudgetError
from quicksand.base.progress import Progress
from quicksand.life import machinery
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record

if TYPE_CHECKING:
    from quicksand.qemu.live_machine import LiveMachine

T = TypeVar("T")


async def make_machine(
    registry: Registry,
    record: Record,
    *,
    warm: bool,
    progress: Progress | None,
    named: Callable[[str], None],
) -> tuple[LiveMachine, int]:
    """The machine of a new sandbox, and the descriptor of its lock. With ``warm`` it may have been
    a spare, and then has the spare's id. ``named`` is called with the id as soon as it is sure.
    Raises as `starting.boot`; nothing is left then."""
    found = None
    if warm and await asyncio.to_thread(machinery.may_take, registry.paths):
        found = await machinery.look_for_parts(registry, record, progress)
        taken = await machinery.take(registry, record, found.parts, found.watch, named=named)
        if taken is not None:
            return taken.machine, taken.lock
    named(record.id)
    lock = registry.create(record)
    try:
        machine = await machinery.boot(
            registry, record, lock, progress=progress, warm=warm, found=found
        )
    except BaseException:
        place = sandbox_dir(registry.paths, record.id)
        with best_effort("remove the sandbox", place.engine_log):
            machinery.remove_quietly(place.root)
        os.close(lock)
        raise
    return machine, lock


async def with_memory(registry: Registry, start: Callable[[], Awaitable[T]]) -> T:
    """Await ``start``. If it lacks memory, end the spares, which take some for a start that may
    never come, and try once more."""
    try:
        return await start()
    except MemoryBudgetError:
        if not await asyncio.to_thread(machinery.end_all, registry):
            raise
    return await start()
