"""The machine of a new sandbox: a waiting spare, or one started now."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from quicksand.base.effort import best_effort
from quicksand.base.errors import MemoryBudgetError
from quicksand.base.progress import Progress
from quicksand.qemu.planning import look_for_parts
from quicksand.qemu.process import remove_quietly
from quicksand.records.layout import sandbox_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.warm.spares.claiming import end_all
from quicksand.warm.spares.handover import take
from quicksand.warm.spares.orders import may_take

if TYPE_CHECKING:
    from quicksand.qemu.process import StartedMachine

T = TypeVar("T")


async def make_machine(
    registry: Registry,
    record: Record,
    *,
    warm: bool,
    progress: Progress | None,
    named: Callable[[str], None],
) -> tuple[StartedMachine, int]:
    """Get the machine of a new sandbox, and the descriptor of its lock. With ``warm`` it may be a
    former spare, whose id it then has. ``named`` is called with the id as soon as that is certain.
    Raises as `starting.boot`; nothing is left then."""
    found = None
    if warm and await asyncio.to_thread(may_take, registry.paths):
        found = await look_for_parts(registry, record, progress)
        taken = await take(registry, record, found.parts, found.watch, named=named)
        if taken is not None:
            return taken.machine, taken.lock
    # A start that takes a spare over needs none of this.
    from quicksand.warm import starting  # noqa: PLC0415

    named(record.id)
    lock = registry.create(record)
    try:
        machine = await starting.boot(
            registry, record, lock, progress=progress, warm=warm, found=found
        )
    except BaseException:
        place = sandbox_dir(registry.paths, record.id)
        with best_effort("remove the sandbox", place.engine_log):
            remove_quietly(place.root)
        os.close(lock)
        raise
    return machine, lock


async def with_memory(registry: Registry, start: Callable[[], Awaitable[T]]) -> T:
    """Await ``start``. If it lacks memory, end the spares, which hold memory for a start that may
    never come, and try once more."""
    try:
        return await start()
    except MemoryBudgetError:
        if not await asyncio.to_thread(end_all, registry):
            raise
    return await start()
