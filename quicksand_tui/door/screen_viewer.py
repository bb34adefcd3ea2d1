"""A guest's screen for a viewer: pictures from a process, and the way back for keys and mouse."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from quicksand.base.errors import DisplayError
from quicksand.display.place import place_text

from quicksand_tui.door.screen_messages import HEAD_BYTES, Drawn, Kind, Order, parse_head
from quicksand_tui.model.text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from quicksand.display.place import Place

WORKER = "quicksand_tui.door.screen_worker"
STDERR_MAX = 4096


class Screen:
    """A process that encodes a guest's screen, made by `open`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.order = Order()
        """The last order."""
        self.size = (0, 0)
        """The width and height of the guest's screen in the last picture."""
        self._saving: asyncio.Future[str] | None = None
        self._errors = b""

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls, place: Place, *, colours: str = "true", ascii_only: bool = False
    ) -> AsyncIterator[Self]:
        """Starts a process for the display at a place. `Order` says how it is drawn."""
        argv = ["-m", WORKER, place_text(place), colours, "ascii" if ascii_only else "half"]
        # A session of its own: Ctrl-C in the terminal is for the viewer.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        screen = cls(process)
        errors = asyncio.create_task(screen._read_errors(), name="quicksand-screen-errors")
        try:
            yield screen
        finally:
            await screen._end()
            errors.cancel()
            await asyncio.wait([errors])

    async def change(self, **changes: Any) -> None:
        """Sends an order with these fields of `Order` changed. A worker that is gone takes none:
        `next_drawn` says why."""
        self.order = replace(self.order, **changes)
        stdin = self._process.stdin
        assert stdin is not None
        with contextlib.suppress(ConnectionError):
            stdin.write(self.order.line())
            await stdin.drain()

    async def next_drawn(self) -> Drawn:
        """Waits for the next picture, after the one before was reported as drained
        (`Order.drained`). Raises DisplayError when the screen is gone."""
        stdout = self._process.stdout
        assert stdout is not None
        while True:
            try:
                kind, length = parse_head(await stdout.readexactly(HEAD_BYTES))
                data = await stdout.readexactly(length)
            except asyncio.IncompleteReadError:
                raise DisplayError(await self._why_ended()) from None
            if kind is Kind.DRAWN:
                drawn = Drawn.parse(data)
                self.size = (drawn.width, drawn.height)
                return drawn
            text = clean(data.decode("utf-8", "replace"))
            if kind is Kind.FAILED:
                raise DisplayError(text)
            if self._saving is not None and not self._saving.done():
                self._saving.set_result(text)

    async def save(self, path: Path) -> str:
        """Writes the screen to a new PNG file; returns "" or the reason why it could not.
        `next_drawn` must be waited for meanwhile."""
        self._saving = asyncio.get_running_loop().create_future()
        await self.change(save=str(path.absolute()))
        return await self._saving

    async def _why_ended(self) -> str:
        await self._process.wait()
        lines = self._errors.decode("utf-8", "replace").strip().splitlines()
        why = clean(lines[-1]) if lines else f"status {self._process.returncode}"
        return f"the process that draws the display has ended: {why}"

    async def _read_errors(self) -> None:
        stderr = self._process.stderr
        assert stderr is not None
        while data := await stderr.read(STDERR_MAX):
            self._errors = (self._errors + data)[-STDERR_MAX:]

    async def _end(self) -> None:
        """Ends the process; it ends by itself with its input."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.kill()  # it keeps nothing that would have to be finished
        # Its output is read to the end, or asyncio would wait for it for ever.
        if process.stdout is not None:
            while await process.stdout.read(1 << 20):
                pass
        await process.wait()
