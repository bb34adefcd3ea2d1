"""Preparing the next start: after one from a template (or with a spare), a process in the
background makes a spare for the next one of the same kind (`maker`)."""

from __future__ import annotations

import asyncio
import contextlib
import os

from quicksand.background import run_later
from quicksand.boot_timing import BootTiming
from quicksand.config import SandboxConfig
from quicksand.errors import QuicksandError
from quicksand.host.files import map_os_errors, try_lock
from quicksand.host.paths import Paths
from quicksand.registry import Registry
from quicksand.sandbox_records import Record
from quicksand.spares.orders import digest_of
from quicksand.spares.spare import USE_ONLY, VARIABLE, has_spares, is_off

AFTER_S = 3
"""Seconds after a start: what its user does first comes first."""

MAKER = "quicksand.spares.maker"
MODES = ("template", "spare")


def may_take(paths: Paths) -> bool:
    """Whether a start may find a spare. Blocks for I/O."""
    return not is_off() and has_spares(paths)


async def expect_next(registry: Registry, record: Record, timing: BootTiming) -> None:
    """Have a spare made for the next start like that of ``record``, in the background. Does nothing
    if a process is about to do that already. Its errors are not reported."""
    if is_off() or os.environ.get(VARIABLE) == USE_ONLY or timing.mode not in MODES:
        return
    with contextlib.suppress(QuicksandError, OSError):
        lock = await asyncio.to_thread(_lock, registry.paths, record.config)
        if lock is None:
            return
        try:
            await run_later(MAKER, record.to_json(), seconds=AFTER_S, descriptors=(lock,))
        finally:
            os.close(lock)


def _lock(paths: Paths, config: SandboxConfig) -> int | None:
    """The lock of the one process that makes spares of such machines; None if there is one."""
    path = paths.sandboxes / f".spares-{digest_of(config)}.lock"
    with map_os_errors(path):
        return try_lock(path)
