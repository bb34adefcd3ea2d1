"""Whoever has gone back to a checkpoint is likely to do it again: it is made ready meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from quicksand.errors import QuicksandError

if TYPE_CHECKING:
    from quicksand.registry import Record, Registry

VARIABLE = "QUICKSAND_STANDBY"
"""Environment: "off" and nothing is made ready."""

DELAY_S = 0.3
"""After a revert: its user is about to do something, and comes first."""


class NextRevert:
    """What one client expects to be asked for next."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._begun = False

    def expect(self, registry: Registry, record: Record, node_id: str) -> None:
        """Make a revert to that checkpoint ready, soon and in the background."""
        if os.environ.get(VARIABLE) != "off":
            self._begun = False
            self._task = asyncio.create_task(
                self._make_ready(registry, record, node_id), name="quicksand-standby"
            )

    async def _make_ready(self, registry: Registry, record: Record, node_id: str) -> None:
        await asyncio.sleep(DELAY_S)
        self._begun = True
        from quicksand.snapshots.standby import make_ready

        # The next revert does without, then; whatever is wrong it will say.
        with contextlib.suppress(QuicksandError):
            await make_ready(registry, record, node_id)

    async def settle(self) -> None:
        """Return when nothing is being made ready. What has not begun does not."""
        if self._task is not None:
            if not self._begun:
                self._task.cancel()
            await asyncio.wait((self._task,))

    def cancel(self) -> None:
        """Leave it."""
        if self._task is not None:
            self._task.cancel()
