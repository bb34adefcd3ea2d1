"""The services of the far end for programs of other machines. They are loaded with the first
request for one: commands start sooner without them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from importlib import import_module
from typing import Any

from quicksand.base.entering import entered
from quicksand.base.paths import paths
from quicksand.hosted.protocol import (
    CAPABILITY,
    FILES,
    FILES_METHODS,
    SANDBOX_METHODS,
    SAVE_METHODS,
    SAVES,
    SCREEN_METHODS,
    SCREENS,
    STANDING,
    STANDING_METHODS,
)
from quicksand.life import machinery
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record
from quicksand.remote.peer_link import Request
from quicksand.remote.serving import Offer


async def finish_revert(registry: Registry, record: Record) -> None:
    """See `remote.agents.Finish`. The code that finishes a revert is loaded for this only."""
    await machinery.until_finished(registry, record)


class LateOffer:
    """An offer that is made when it is first needed (`Offer`)."""

    def __init__(
        self, capability: str, methods: Collection[str], load: Callable[[], Offer]
    ) -> None:
        """``load`` makes the offer, on another thread."""
        self.capability = capability
        self.methods = methods
        self._load = load
        self._offer: Offer | None = None
        self._loading = asyncio.Lock()

    async def answer(self, request: Request, before_keeping: Callable[[], Awaitable[None]]) -> None:
        """See `Offer.answer`."""
        async with self._loading:
            if self._offer is None:
                self._offer = await asyncio.to_thread(self._load)
        await self._offer.answer(request, before_keeping)

    @property
    def is_empty(self) -> bool:
        """See `Offer.is_empty`."""
        return self._offer is None or self._offer.is_empty

    def away(self) -> None:
        """See `Offer.away`."""
        if self._offer is not None:
            self._offer.away()

    def back(self) -> None:
        """See `Offer.back`."""
        if self._offer is not None:
            self._offer.back()

    async def leave(self) -> None:
        """See `Offer.leave`."""
        if self._offer is not None:
            await self._offer.leave()

    async def settle(self) -> None:
        """See `Offer.settle`."""
        if self._offer is not None:
            await self._offer.settle()


def all_offers(find_sandbox: Callable[[], Any]) -> tuple[LateOffer, ...]:
    """Return all offers of this room, and those of other packages (``quicksand.offers``).
    ``find_sandbox`` returns the class `Sandbox`, which this room does not import."""

    def sandboxes() -> Offer:
        made: Offer = import_module("quicksand.hosted.holding").HeldSandboxes(find_sandbox())
        return made

    def saves() -> Offer:
        made: Offer = import_module("quicksand.hosted.save_moving").MovingSaves(paths())
        return made

    def files() -> Offer:
        made: Offer = import_module("quicksand.hosted.streamed_files").StreamedFiles(find_sandbox())
        return made

    def screens() -> Offer:
        made: Offer = import_module("quicksand.hosted.relayed_screen").Screens(paths())
        return made

    def standing() -> Offer:
        made: Offer = import_module("quicksand.hosted.standing").Standing(paths())
        return made

    return (
        LateOffer(CAPABILITY, SANDBOX_METHODS, sandboxes),
        LateOffer(SAVES, SAVE_METHODS, saves),
        LateOffer(FILES, FILES_METHODS, files),
        LateOffer(SCREENS, SCREEN_METHODS, screens),
        LateOffer(STANDING, STANDING_METHODS, standing),
        *(offer for one in entered("quicksand.offers").values() for offer in one.load()()),
    )
