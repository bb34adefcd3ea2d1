"""Recordings of guests' screens for the app, and words about their ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import QuicksandError

from quicksand_tui.model.amounts import seconds_text, size_text
from quicksand_tui.model.text import clean, error_text

if TYPE_CHECKING:
    from quicksand.display.recording import Recorded, Recording
    from quicksand.sandbox import Sandbox

ENDED = {
    "sandbox": "the sandbox has ended",
    "seconds": "it was as long as it may be",
    "size": "a file has at most 2 GiB",
}
"""The reasons why a recording ended, if nobody ended it."""


def recorded_text(done: Recorded, path: str | None = None) -> str:
    """Returns words about the file, which its user calls ``path``, and why the recording ended if
    nobody ended it."""
    pictures = "1 picture" if done.pictures == 1 else f"{done.pictures} pictures"
    told = f"{pictures} of {done.width}x{done.height}, {size_text(done.size_bytes, wide=True)}"
    why = f"; {ENDED[done.why]}" if done.why in ENDED else ""
    return f"{clean(path or done.path)}: {seconds_text(done.seconds)}, {told}{why}"


class EngineRecording:
    """A recording on the engine's loop. The app's end ends it, too, and its file is complete."""

    def __init__(
        self,
        opened: Callable[[], Sandbox],
        path: Path,
        ended: Callable[[str], None],
        *,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[Any]],
    ) -> None:
        """``opened`` opens the sandbox. ``ended`` is called once, on the engine's loop, with words
        on the file, or on why there is none."""
        self._opened = opened
        self._path = path
        self._ended = ended
        self._engine = engine
        self._tasks = tasks
        self._recording: Recording | None = None
        self._stopped = False
        self._call(self._begin)

    def stop(self) -> None:
        """Ends the recording; may be called from any thread."""
        self._call(self._stop)

    def _call(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._engine.call_soon_threadsafe(function)

    # On the engine's loop

    def _begin(self) -> None:
        task = self._engine.create_task(self._run(), name="quicksand-recording-of-app")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self) -> None:
        self._stopped = True
        if self._recording is not None:
            self._recording.stop()

    async def _run(self) -> None:
        try:
            with contextlib.closing(self._opened()) as sandbox:
                async with sandbox.record(self._path) as self._recording:
                    if self._stopped:
                        self._recording.stop()
                    done = await self._recording.wait()
        except (QuicksandError, OSError) as error:
            self._ended(f"Nothing was recorded: {error_text(error)}")
        else:
            self._ended(f"Recorded as {recorded_text(done)}")
