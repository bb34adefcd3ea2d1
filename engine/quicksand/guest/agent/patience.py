"""Waiting for a guest in the time in which it runs.

A paused guest does nothing, and its clock stands still. Its waiters are told so at once (by the
logger ``quicksand``, whose warnings Python prints unless a program does something else with them),
and the wait goes on when the guest does: its limit counts only the time in which the guest runs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from quicksand.base.remedies import Words

T = TypeVar("T")

LOOK_S = 1.0
"""Seconds between looks of a wait whether the guest runs."""

logger = logging.getLogger("quicksand")


class GuestState:
    """The knowledge of one connection's waits about the guest's machine."""

    def __init__(self) -> None:
        self.why_paused: Callable[[], Words | None] = lambda: None
        """Returns the message for a paused guest, and None while it runs."""
        self._looked = float("-inf")
        self._is_paused = False

    def is_paused(self) -> bool:
        """Whether the guest is paused, which is reported once for each pause. All waits of a
        connection share a look."""
        now = asyncio.get_running_loop().time()
        if now - self._looked < LOOK_S / 2:
            return self._is_paused
        self._looked = now
        said = self.why_paused()
        if said is not None and not self._is_paused:
            logger.warning(said)
        self._is_paused = said is not None
        return self._is_paused


class Wait:
    """A wait of at most ``seconds`` in which the guest runs, perhaps in several pieces; None has no
    end."""

    def __init__(self, guest: GuestState, seconds: float | None) -> None:
        self._guest = guest
        self._left = seconds

    async def until(self, ready: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``ready``, which is cancelled and repeated. Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        is_paused = False
        while True:
            started = loop.time()
            piece = LOOK_S if is_paused or self._left is None else min(LOOK_S, self._left)
            try:
                async with asyncio.timeout(piece) as limit:
                    return await ready()
            except TimeoutError:
                if not limit.expired():
                    raise
            finally:
                is_paused = limit.expired() and self._guest.is_paused()
                if self._left is not None and not is_paused:
                    self._left = max(0.0, self._left - (loop.time() - started))
            if self._left == 0.0 and not is_paused:
                raise TimeoutError
