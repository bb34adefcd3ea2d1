"""What the far end offers: sandboxes for programs of other machines (an `Offer` of
`remote.serving`). What holds them is loaded with the first request: commands do without."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING

from quicksand.hosted.protocol import CAPABILITY
from quicksand.remote.link import Request

if TYPE_CHECKING:
    from quicksand.hosted.holding import HeldSandboxes, Make


class OfferedSandboxes:
    """The sandboxes of one client."""

    capability = CAPABILITY
    methods = ("call", "answered", "release", "sandboxes", "events", "logs")

    def __init__(self, find_make: Callable[[], Make]) -> None:
        """``find_make`` returns the class `Sandbox`, which this room does not know."""
        self._find_make = find_make
        self._held: HeldSandboxes | None = None
        self._loading = asyncio.Lock()

    async def answer(self, request: Request, before_keeping: Callable[[], Awaitable[None]]) -> None:
        """See `Offer.answer`."""
        async with self._loading:
            if self._held is None:
                self._held = await asyncio.to_thread(self._load)
        await self._held.answer(request, before_keeping)

    def _load(self) -> HeldSandboxes:
        holding = import_module("quicksand.hosted.holding")
        held: HeldSandboxes = holding.HeldSandboxes(self._find_make())
        return held

    @property
    def is_empty(self) -> bool:
        """See `Offer.is_empty`."""
        return self._held is None or self._held.is_empty

    def away(self) -> None:
        """See `Offer.away`."""
        if self._held is not None:
            self._held.away()

    def back(self) -> None:
        """See `Offer.back`."""
        if self._held is not None:
            self._held.back()

    async def leave(self) -> None:
        """See `Offer.leave`."""
        if self._held is not None:
            await self._held.leave()

    async def settle(self) -> None:
        """See `Offer.settle`."""
        if self._held is not None:
            await self._held.settle()
