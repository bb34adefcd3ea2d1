"""The stock of spares: those that wait, those that are missing, and those that are too many."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from quicksand.base.effort import best_effort
from quicksand.base.errors import QuicksandError, StateError
from quicksand.base.files import map_os_errors, try_lock
from quicksand.base.paths import Paths, make_private_dir
from quicksand.base.remedies import Words
from quicksand.base.threads import in_thread_to_the_end
from quicksand.qemu.planning import gather_parts
from quicksand.records.config import SandboxConfig
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record, new_id
from quicksand.warm.spares.claiming import end, end_useless
from quicksand.warm.spares.orders import Orders, SpareOrder, plain, restock_later
from quicksand.warm.spares.spare import Fit, Spare, list_spares
from quicksand.warm.spares.spare_making import WAIT_S, check_room, make_spare
from quicksand.warm.templates import Templates, make_apart

AT_MOST = 3
"""The most spares that are not ordered; those made first are ended."""

LOCK_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Stocked:
    """The state of an order."""

    order: SpareOrder
    ready: int
    why: str | Words
    """The reason why the missing ones cannot be made now; "" if they can, or if none is missing."""


@dataclass(frozen=True, slots=True)
class Ended:
    """An order that has been ended."""

    count: int
    """The number of spares that it wanted; 0 if there was no such order."""
    spares: int
    """The number of spares that waited, and were ended."""


async def expect(registry: Registry, record: Record) -> None:
    """Have one spare ready for the next start like that of ``record``, and the ordered ones. Ends
    useless spares. Orders that cannot be fulfilled at once are left to `restock`, in a process of
    its own: its templates take long, and the next start like this one must not wait for them.
    Raises as `make_spare`."""
    async with _alone(registry.paths):
        await in_thread_to_the_end(lambda: end_useless(registry))
        orders = await asyncio.to_thread(Orders(registry.paths).list)
        if not all([await _try_to_fulfil(registry, order) for order in orders]):
            await restock_later(registry.paths)
        await _have(registry, record, 1, seconds=WAIT_S)
        await in_thread_to_the_end(lambda: _end_surplus(registry))


async def _try_to_fulfil(registry: Registry, order: SpareOrder) -> bool:
    """Fulfil an order; returns whether that was possible."""
    with best_effort(f"make the spares of {order.config.image}", registry.paths.engine_log):
        await _fulfil(registry, order)
        return True
    return False


async def restock(registry: Registry) -> None:
    """Have the ordered spares ready, and the templates that they need."""
    for order in await asyncio.to_thread(Orders(registry.paths).list):
        # One order whose image is gone, say, must not hinder the others.
        with best_effort(f"make the spares of {order.config.image}", registry.paths.engine_log):
            await _have_template(registry, order)
            async with _alone(registry.paths):
                # It may have been changed or ended in the meantime.
                if order in await asyncio.to_thread(Orders(registry.paths).list):
                    await _fulfil(registry, order)


async def _have_template(registry: Registry, order: SpareOrder) -> None:
    """Have the template made that the missing spares of ``order`` need, if there is none. Raises as
    `check_order`."""
    if await check_order(registry, order.config, order.count):
        return
    record = record_for(order.config)
    templates = Templates(registry.paths, record, await gather_parts(registry, record))
    if await asyncio.to_thread(templates.find) is None:
        await make_apart(templates)


async def check_order(registry: Registry, config: SandboxConfig, count: int) -> bool:
    """Returns whether ``count`` such spares are ready. Raises StateError if there can be none, and
    MemoryBudgetError if the host has no memory for one that is missing; HostError, ImageError."""
    record = record_for(config)
    fit = await _fit(registry, record)
    if fit.refusal:
        raise StateError(f"there can be no spare: {fit.refusal}", hint=fit.hint)
    if len(await _ordered(registry, record)) >= count:
        return True
    await asyncio.to_thread(check_room, config)
    return False


async def set_order(registry: Registry, config: SandboxConfig, count: int) -> int:
    """Keep ``count`` spares for ``config`` ready from now on (at least one), and make them. Returns
    how many are ready.

    After an error the order is what it was before, and the spares that were made for it are ended.
    After a cancellation the order stands, and so do the spares that were made. Raises ConfigError,
    and as `check_order` and `make_spare`.
    """
    await check_order(registry, config, count)
    orders = Orders(registry.paths)
    async with _alone(registry.paths):
        await in_thread_to_the_end(lambda: end_useless(registry))
        before = await in_thread_to_the_end(lambda: orders.set(config, count))
        try:
            return await _fulfil(registry, SpareOrder(plain(config), count))
        except (QuicksandError, OSError):
            await in_thread_to_the_end(lambda: _put_back(registry, config, before))
            raise


def _put_back(registry: Registry, config: SandboxConfig, before: int) -> None:
    """Restore an order's earlier number, and end the spares that are then too many. Blocks."""
    Orders(registry.paths).set(config, before)
    _end_ordered(registry, config, kept=before)


async def end_order(registry: Registry, config: SandboxConfig) -> Ended:
    """Stop keeping spares for ``config`` ready, and end the existing ones, even if their image is
    gone. Raises StateError, HostError."""
    orders = Orders(registry.paths)
    count = await in_thread_to_the_end(lambda: orders.set(config, 0))
    async with _alone(registry.paths):
        spares = await in_thread_to_the_end(lambda: _end_ordered(registry, config, kept=0))
        await in_thread_to_the_end(lambda: end_useless(registry))
    return Ended(count, spares)


async def look(registry: Registry) -> list[Stocked]:
    """Return the state of all orders. Raises StateError if their file cannot be read."""
    found = []
    for order in await asyncio.to_thread(Orders(registry.paths).read):
        ready = 0
        why: str | Words = ""
        try:
            ready = len(await _ordered(registry, record_for(order.config)))
            await check_order(registry, order.config, order.count)
        except QuicksandError as error:
            why = error.words
        found.append(Stocked(order, ready, why))
    return found


async def _fulfil(registry: Registry, order: SpareOrder) -> int:
    return await _have(registry, record_for(order.config), order.count, seconds=None)


async def _have(registry: Registry, record: Record, count: int, *, seconds: float | None) -> int:
    """Make as many spares as are missing for ``count``, and end those whose machine has changed
    (the image was rebuilt). Without a limit to their ``seconds`` only ordered ones count, and
    surplus ones are ended. Returns how many there are, at most ``count``."""
    record = as_next(record)
    key = (await _fit(registry, record)).key
    alike = await asyncio.to_thread(_alike, registry.paths, record)
    fit = [spare for spare in alike if spare.key == key]
    useless = [spare for spare in alike if spare.key != key]
    if seconds is None:
        fit = [spare for spare in fit if spare.until is None]
        useless += fit[count:]
    for spare in useless:
        await in_thread_to_the_end(lambda spare=spare: end(registry, spare))  # type: ignore[misc]
    ready = min(len(fit), count)
    while ready < count:
        await make_spare(registry, record, seconds=seconds)
        ready += 1
    return ready


async def _ordered(registry: Registry, record: Record) -> list[Spare]:
    """Return the spares that count for an order of machines such as ``record``."""
    key = (await _fit(registry, record)).key
    alike = await asyncio.to_thread(_alike, registry.paths, record)
    return [spare for spare in alike if spare.key == key and spare.until is None]


def _alike(paths: Paths, record: Record) -> list[Spare]:
    """Return the spares made for such machines, even with another version of the image."""
    return [
        spare
        for spare in list_spares(paths)
        if plain(spare.record.config) == plain(record.config)
        and _source(spare.record) == _source(record)
    ]


async def _fit(registry: Registry, record: Record) -> Fit:
    parts = await gather_parts(registry, record)
    return await asyncio.to_thread(Fit.of, registry.paths, record, parts)


def _end_ordered(registry: Registry, config: SandboxConfig, *, kept: int) -> int:
    """End the spares that were ordered as such machines, except the ``kept`` oldest; returns how
    many. Blocks."""
    alike = _alike(registry.paths, record_for(config))
    ordered = [spare for spare in alike if spare.until is None]
    return sum(end(registry, spare) for spare in ordered[kept:])


def _end_surplus(registry: Registry) -> None:
    unordered = [spare for spare in list_spares(registry.paths) if spare.until is not None]
    for spare in unordered[: max(0, len(unordered) - AT_MOST)]:
        end(registry, spare)


def record_for(config: SandboxConfig) -> Record:
    """The record of a machine of ``config`` that has never started."""
    return Record(
        id=new_id(),
        name="spare",
        config=plain(config),
        image_digest="",
        chain=(),
        created=0.0,
        committed=False,
        discard=True,
    )


def as_next(record: Record) -> Record:
    """Return the record with which the next start like that of ``record`` begins: with the image as
    it is then. (A save's image stays the same.)"""
    if record.source is not None:
        return replace(record, committed=False)
    return record_for(record.config)


def _source(record: Record) -> str:
    return "" if record.source is None else record.source.digest


@contextlib.asynccontextmanager
async def _alone(paths: Paths) -> AsyncIterator[None]:
    """Wait until no other process makes spares."""
    path = paths.sandboxes / ".spares.lock"
    make_private_dir(path.parent)
    with map_os_errors(path):
        while (lock := try_lock(path)) is None:  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(LOCK_POLL_S)
    try:
        yield
    finally:
        os.close(lock)
