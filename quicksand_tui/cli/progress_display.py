"""Shows progress on stderr: only on a terminal, and only of work that takes more than a second."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from quicksand_tui.cli.output import covering, is_terminal
from quicksand_tui.cli.reported_progress import Standing

if TYPE_CHECKING:
    from quicksand_tui.cli.rich_progress import Display

PATIENCE_S = 1.0
TICK_S = 0.1


@contextlib.asynccontextmanager
async def shown(what: str | Callable[[], Standing]) -> AsyncIterator[None]:
    """Shows progress on one line of the terminal during the context, and removes the line at its
    end. ``what`` is a text, or returns the current progress. Raises the errors of drawing."""
    if not is_terminal(sys.stderr):
        yield
        return
    look = (lambda: Standing(text=what)) if isinstance(what, str) else what
    task = asyncio.create_task(_tick(look), name="quicksand-progress")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait((task,))
    if not task.cancelled():
        task.result()  # raises if the drawing has failed


async def _tick(look: Callable[[], Standing]) -> None:
    began = time.monotonic()
    await asyncio.sleep(PATIENCE_S)
    # Most commands end before this. rich is imported in a thread, since the work goes on meanwhile.
    display = await asyncio.to_thread(_make_display)
    # The work does not fail when the terminal goes away.
    with contextlib.suppress(OSError), covering(display.hide):
        while True:
            display.draw(look(), time.monotonic() - began)
            await asyncio.sleep(TICK_S)


def _make_display() -> Display:
    from quicksand_tui.cli.rich_progress import Display  # noqa: PLC0415

    return Display()
