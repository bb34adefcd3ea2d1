"""Looking for a sandbox's keeper, the parent process of its QEMU (qemu/keeper.py): one that was
killed is replaced (keeper_successor.py)."""

from __future__ import annotations

import time

from quicksand.base.files import is_locked
from quicksand.base.threads import in_thread_to_the_end
from quicksand.records.layout import runtime_dir
from quicksand.records.registry import Registry
from quicksand.records.sandboxes import Record

PATIENCE_S = 30.0
"""Seconds between two attempts to replace a keeper."""


async def ensure_keeper(registry: Registry, record: Record) -> bool:
    """Start a new keeper for a running sandbox if its own was killed. Returns False if that is not
    possible (on systems other than Linux, for instance); calls that need a keeper fail then.
    """
    runtime = runtime_dir(registry.paths, record.id)
    if not runtime.keeper_lock.exists() or is_locked(runtime.keeper_lock):
        return True
    entry = registry.inspect(record.id)
    if entry is None or entry.run is None:
        return True
    from quicksand.qemu.keeper_successor import start_successor  # noqa: PLC0415

    run = entry.run
    return await in_thread_to_the_end(lambda: start_successor(registry, record, run))


class KeeperCheck:
    """Calls `ensure_keeper` for a client that makes many requests. Looking for the keeper costs
    next to nothing; failed attempts to replace it are made at most every PATIENCE_S."""

    def __init__(self) -> None:
        self._not_before = 0.0

    async def ensure(self, registry: Registry, record: Record) -> None:
        """See `ensure_keeper`."""
        if time.monotonic() >= self._not_before and not await ensure_keeper(registry, record):
            self._not_before = time.monotonic() + PATIENCE_S
