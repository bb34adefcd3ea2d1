"""Tells whether keys typed into a terminal are answered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from quicksand.base.errors import QuicksandError

T = TypeVar("T")

ECHO_S = 1.0
"""Seconds without output after a key until the guest is asked: a password has no echo."""


class Heed(Protocol):
    """`Silences.heed` for one sandbox."""

    async def __call__(self, answer: Awaitable[T], *, waited_s: float = 0.0) -> T: ...


class Typed:
    """Looks whether a terminal's guest answers the keys. A guest that echoes is not asked, nor is
    one that nobody types into."""

    def __init__(self, heed: Heed) -> None:
        self._heed = heed
        self._typed = asyncio.Event()
        self._heard = 0.0

    def typed(self) -> None:
        """Notes that something is sent to the guest."""
        self._typed.set()

    def heard(self) -> None:
        """Notes that the terminal has written something."""
        self._heard = time.monotonic()

    async def follow(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Looks until it is cancelled; ``ask`` asks the guest anything."""
        while True:
            await self._typed.wait()
            self._typed.clear()
            began = time.monotonic()
            await asyncio.sleep(ECHO_S)
            if self._heard >= began:
                continue
            try:
                await self._heed(ask(), waited_s=ECHO_S)
            except (OSError, TimeoutError, QuicksandError):
                self._typed.set()  # asks again
