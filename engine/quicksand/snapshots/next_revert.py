"""Whoever takes a checkpoint, or goes back to one, is likely to go back to it next: that is made
ready meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import TYPE_CHECKING

from quicksand.errors import QuicksandError
from quicksand.host.memory import check_memory

if TYPE_CHECKING:
    from quicksand.registry import Record, Registry
    from quicksand.snapshots.records import Node

VARIABLE = "QUICKSAND_STANDBY"
"""Environment: "off" and nothing is made ready."""

AFTER_REVERT_S = 0.3
"""Its user is about to do something, and comes first."""

AFTER_CHECKPOINT_S = 1.0
"""What is to be tried takes a moment; who takes one after the other goes back to none."""


class NextRevert:
    """What one client expects to be asked for next."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._goal: tuple[str, ...] = ()
        """Of the checkpoint that is being made ready: its id and its tag."""

    def expect(self, registry: Registry, record: Record, node: Node, *, after: float) -> None:
        """Make a revert to that checkpoint ready, in the background, beginning in so many
        seconds."""
        if os.environ.get(VARIABLE) != "off":
            self.cancel()
            self._goal = ()
            self._task = asyncio.create_task(
                self._make_ready(registry, record, node, after), name="quicksand-standby"
            )

    async def _make_ready(
        self, registry: Registry, record: Record, node: Node, after: float
    ) -> None:
        await asyncio.sleep(after)
        self._goal = (node.id, node.tag)
        from quicksand.snapshots.standby import make_ready

        # The next revert does without, then; whatever is wrong it will say.
        with contextlib.suppress(QuicksandError):
            await asyncio.to_thread(check_memory, record.config.memory_bytes)
            await make_ready(registry, record, node.id)

    async def settle(self, goal: str | None = None) -> None:
        """Return when nothing is being made ready. What is under way is waited for if it is for
        that checkpoint, and given up otherwise: the user comes first."""
        task = self._task
        # What has ended may have been on a loop that is closed by now.
        if task is not None and not task.done():
            if goal not in self._goal:
                task.cancel()
            await asyncio.wait((task,))

    def cancel(self) -> None:
        """Leave it."""
        if self._task is not None:
            self._task.cancel()
