"""The stock of spares: what waits, what is missing, what is too much."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace

from quicksand.config import SandboxConfig
from quicksand.errors import QuicksandError, StateError
from quicksand.host.files import map_os_errors, try_lock
from quicksand.host.paths import Paths, make_private_dir
from quicksand.host.threads import in_thread_to_the_end
from quicksand.planning import gather_parts
from quicksand.registry import Registry
from quicksand.sandbox_records import Record, new_id
from quicksand.spares.claiming import end
from quicksand.spares.ending import end_useless
from quicksand.spares.making import WAIT_S, make_spare
from quicksand.spares.orders import Order, Orders, plain
from quicksand.spares.spare import Fit, Spare, list_spares

AT_MOST = 3
"""Spares that nobody has ordered; those made first are ended."""

LOCK_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Stocked:
    """How an order stands."""

    order: Order
    ready: int


async def expect(registry: Registry, record: Record) -> None:
    """Have one spare ready for the next start like that of ``record``, and what is ordered. Ends
    what is of no use. Raises as `make_spare`."""
    async with _alone(registry.paths):
        await in_thread_to_the_end(lambda: end_useless(registry))
        for order in await asyncio.to_thread(Orders(registry.paths).list):
            # An order whose image is gone, say, must not be in the way of the others.
            with contextlib.suppress(QuicksandError):
                await _fulfil(registry, order)
        await _have(registry, record, 1, seconds=WAIT_S)
        await in_thread_to_the_end(lambda: _end_surplus(registry))


async def set_order(registry: Registry, config: SandboxConfig, count: int) -> int:
    """Keep ``count`` spares of such machines ready from now on, and make them; with 0 those that
    are ready are ended. Returns how many are ready. Raises ConfigError, and as `make_spare`."""
    order = Order(plain(config), count)
    if count:
        record = record_for(config)
        fit = await _fit(registry, record)
        if fit.refusal:
            raise StateError(f"there can be no spare: {fit.refusal}")
    await asyncio.to_thread(Orders(registry.paths).set, config, count)
    async with _alone(registry.paths):
        await in_thread_to_the_end(lambda: end_useless(registry))
        if count:
            return await _fulfil(registry, order)
        await in_thread_to_the_end(lambda: _end_ordered(registry, order.config))
        return 0


async def look(registry: Registry) -> list[Stocked]:
    """How all orders stand."""
    found = []
    for order in await asyncio.to_thread(Orders(registry.paths).list):
        ready = 0
        with contextlib.suppress(QuicksandError):
            ready = len(await _ordered(registry, record_for(order.config)))
        found.append(Stocked(order, ready))
    return found


async def _fulfil(registry: Registry, order: Order) -> int:
    return await _have(registry, record_for(order.config), order.count, seconds=None)


async def _have(registry: Registry, record: Record, count: int, *, seconds: float | None) -> int:
    """Make as many spares as are missing for ``count``, and end those whose machine has changed
    (the image was built anew). With no limit to their ``seconds`` only ordered ones count, and
    those that are too many are ended. Returns how many there are, at most ``count``."""
    record = as_next(record)
    key = (await _fit(registry, record)).key
    alike = [
        spare
        for spare in await asyncio.to_thread(list_spares, registry.paths)
        if plain(spare.record.config) == plain(record.config)
        and _source(spare.record) == _source(record)
    ]
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
    key = (await _fit(registry, record)).key
    found = await asyncio.to_thread(list_spares, registry.paths)
    disk = record.config.disk_size_bytes or 0
    return [s for s in found if s.key == key and s.disk == disk and s.until is None]


async def _fit(registry: Registry, record: Record) -> Fit:
    parts = await gather_parts(registry, record)
    return await asyncio.to_thread(Fit.of, registry.paths, record, parts)


def _end_ordered(registry: Registry, config: SandboxConfig) -> None:
    for spare in list_spares(registry.paths):
        if spare.until is None and plain(spare.record.config) == config:
            end(registry, spare)


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
    """The record with which the next start like that of ``record`` begins: with the image as it is
    then. (A save's image stays the same.)"""
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
