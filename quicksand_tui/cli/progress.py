"""Progress on stderr: only on a terminal, only for what takes longer than a second."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable

from quicksand_tui.cli.text import clean

PATIENCE_S = 1.0
TICK_S = 0.2
CLEAR_LINE = "\r\x1b[K"


@contextlib.asynccontextmanager
async def shown(describe: Callable[[float], str]) -> AsyncIterator[None]:
    """Show ``describe(seconds)`` on one line that is rewritten, and removed at the end."""
    if not sys.stderr.isatty():
        yield
        return
    task = asyncio.create_task(_tick(describe), name="quicksand-progress")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))


async def _tick(describe: Callable[[float], str]) -> None:
    started = time.monotonic()
    await asyncio.sleep(PATIENCE_S)
    try:
        while True:
            line = clean(describe(time.monotonic() - started))
            sys.stderr.write(CLEAR_LINE + line)
            sys.stderr.flush()
            await asyncio.sleep(TICK_S)
    finally:
        sys.stderr.write(CLEAR_LINE)
        sys.stderr.flush()


STAGES = {
    "image": "finding the image",
    "accelerator": "choosing the accelerator",
    "disk": "making the disk",
    "qemu": "starting QEMU",
    "guest": "booting",
}


class StartProgress:
    """Knows how far a start is; its `stage` is a sandbox's ``progress_callback``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stage = "starting"

    def stage(self, name: str, done: int, total: int) -> None:
        self._stage = f"{STAGES.get(name, name)} ({done + 1} of {total})"

    def describe(self, seconds: float) -> str:
        return f"{self._name}: {self._stage}, {seconds:.1f} s"
