"""Words about spares: orders that are ended, put back or interrupted, and the state of all."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from quicksand.base.arch import Architecture
from quicksand.base.errors import ConfigError, ImageError, QuicksandError, StateError
from quicksand.disks.images.resolve import ImageResolver
from quicksand.life.image_building import buildable_images
from quicksand.life.spare_names import machine_name, order_command
from quicksand.saves.bundle.unpacked import save_in
from quicksand.saves.resolving import find_meaning
from quicksand.warm.spares import stock
from quicksand.warm.spares.orders import Orders, plain
from quicksand.warm.spares.stock import look

from quicksand_tui.cli.output import print_json, say
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from quicksand.life.basis import Basis
    from quicksand.records.config import SandboxConfig
    from quicksand.records.registry import Registry
    from quicksand.saves.bundle.unpacked import BundleHead


def require_image(config: SandboxConfig, registry: Registry) -> None:
    """Checks the image to be warmed up. Raises ConfigError if it is a save, and ImageNotFound,
    ImageError if it is no image that is here or can be built."""
    name, resolver = config.image, ImageResolver(registry.paths)
    arch = config.arch or Architecture.host()
    try:
        if name not in buildable_images() or resolver.knows(name, arch):
            resolver.resolve(name, arch)
    except ImageError:
        if find_meaning(name, registry.paths).save is None:
            raise
        raise ConfigError(
            f"{name!r} is a save, and only images are warmed up",
            hint=f"`quicksand-tui run {name}` has a template made of the save; after the next such "
            "start a spare waits for ten minutes",
        ) from None


def require_image_bundle(basis: Basis) -> BundleHead:
    """Returns the bundle that is to be warmed up. Raises ConfigError if it holds a save."""
    assert basis.bundle is not None
    if save_in(basis.bundle) is None:
        return basis.bundle
    raise ConfigError(
        f"{str(basis.bundle.path)!r} holds a save, and only images are warmed up",
        hint=f"`quicksand-tui run {basis.bundle.path}` has a template made of the save",
    )


async def end_order(registry: Registry, config: SandboxConfig, *, as_json: bool) -> None:
    """Ends the order of spares of this machine, or tells that there is none, and the existing ones.
    Raises as `require_image` if none is of that image."""
    ended = await stock.end_order(registry, config)
    left = await asyncio.to_thread(Orders(registry.paths).read)
    if not ended.count and all(order.config.image != config.image for order in left):
        await asyncio.to_thread(require_image, config, registry)
    if as_json:
        facts = {"image": config.image, "spares": 0}
        print_json({**facts, "ended_order": ended.count, "ended_spares": ended.spares})
        return
    name = clean(machine_name(config))
    if ended.count:
        waited = f"{ended.spares} {'spare' if ended.spares == 1 else 'spares'} that waited"
        print(f"{name}: the order of {ended.count} is ended, and {waited}", flush=True)
        return
    print(f"{name}: no spares of this machine were ordered", flush=True)
    for order in left:
        say(f"ordered: {order.count} of {clean(machine_name(order.config))}")
        say(f"→ {_ends(registry, order.config)}")


def _ends(registry: Registry, config: SandboxConfig) -> str:
    return f"`{clean(order_command(registry.paths, config, 0))}` ends it"


@contextlib.asynccontextmanager
async def order_told(registry: Registry, config: SandboxConfig) -> AsyncIterator[None]:
    """Tells the state of the order if this context fails or is interrupted."""
    name = clean(machine_name(config))
    try:
        yield
    except QuicksandError:
        count = await _wanted(registry, config)
        if count is not None:
            say(f"{name}: {f'{count} stay ordered as before' if count else 'nothing is ordered'}")
        raise
    except asyncio.CancelledError:
        count = await _wanted(registry, config)
        if count:
            say(f"{name}: interrupted, but {count} are ordered: {await _ready(registry, config)}")
            say(f"→ {_ends(registry, config)}")
        elif count is not None:
            say(f"{name}: interrupted, nothing is ordered")
        raise


async def _wanted(registry: Registry, config: SandboxConfig) -> int | None:
    """Returns the ordered number of spares of this machine; None if that cannot be read, and so was
    not changed either (`doctor` tells of it)."""
    try:
        orders = await asyncio.to_thread(Orders(registry.paths).read)
    except StateError:
        return None
    return next((order.count for order in orders if order.config == plain(config)), 0)


async def _ready(registry: Registry, config: SandboxConfig) -> str:
    """Returns the number of ready spares of an order, and the fate of the others."""
    (one,) = [one for one in await look(registry) if one.order.config == plain(config)]
    if one.ready >= one.order.count:
        return "they are ready"
    return f"{one.ready} ready, and the next start has the rest made"
