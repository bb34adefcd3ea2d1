"""Preparing the next revert in the background: after a checkpoint is taken or reverted to, the next
revert is likely to go to the same one. standby.py does the work; this decides when."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from quicksand.base.effort import best_effort
from quicksand.base.memory import check_memory
from quicksand.base.settings import STANDBY
from quicksand.records.layout import sandbox_dir

if TYPE_CHECKING:
    from quicksand.records.nodes import Node
    from quicksand.records.registry import Registry
    from quicksand.records.sandboxes import Record

VARIABLE = STANDBY.variable
"""Environment variable: "off" disables the preparation."""

AFTER_REVERT_S = 0.3
"""Seconds to wait after a revert, so that the user's next actions come first."""

AFTER_CHECKPOINT_S = 1.0
"""Seconds to wait after a checkpoint: its user first tries something, and a client that takes many
checkpoints in a row reverts to none of them."""


class NextRevert:
    """The revert that one client expects to be asked for next."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None
        self._goal: tuple[str, ...] = ()
        """The id and tag of the checkpoint for which a revert is being prepared."""

    def expect(self, registry: Registry, record: Record, node: Node, *, after: float) -> None:
        """Start preparing a revert to ``node`` in the background, in ``after`` seconds. Raises
        ConfigError for a bad value of VARIABLE, which the caller has excluded."""
        if not STANDBY.is_off:
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
        from quicksand.snapshots.standby import make_ready  # noqa: PLC0415

        # After a failure the next revert works without, and reports what is wrong.
        log = sandbox_dir(registry.paths, record.id).engine_log
        with best_effort(f"prepare the revert to {node.tag!r}", log):
            await asyncio.to_thread(check_memory, record.config.memory_bytes)
            await make_ready(registry, record, node.id)

    async def settle(self, goal: str | None = None) -> None:
        """Return when nothing is being prepared: wait for the preparation if it is for the
        checkpoint ``goal`` (id or tag), otherwise cancel it."""
        task = self._task
        # A task that is done may belong to an event loop that is closed by now.
        if task is not None and not task.done():
            if goal not in self._goal:
                task.cancel()
            await asyncio.wait((task,))

    def cancel(self) -> None:
        """Cancel the preparation without waiting."""
        if self._task is not None:
            self._task.cancel()
