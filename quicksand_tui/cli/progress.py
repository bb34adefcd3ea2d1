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


class Rate:
    """Knows how far something that moves bytes is. `report` takes a stage, bytes done, and all."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._stage = ""
        self._done = self._total = 0
        self._began = time.monotonic()

    def report(self, stage: str, done: int, total: int) -> None:
        if stage != self._stage:
            self._stage, self._began = stage, time.monotonic()
        self._done, self._total = done, total

    def describe(self, seconds: float) -> str:
        """What, how much of it, how fast, and how long it will take."""
        if not self._total:
            return f"{self._title}, {seconds:.1f} s"
        text = f"{self._title}: {self._stage}, {self._done * 100 // self._total} %"
        spent = time.monotonic() - self._began
        if not self._done or spent < PATIENCE_S:
            return text
        rate = self._done / spent
        left = (self._total - self._done) / rate
        return f"{text}, {rate / 1e6:.0f} MB/s, {left:.0f} s left"
