"""A guest's screen for the app: lives on the engine's loop, is ordered from the UI's thread, and
goes on after a revert."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quicksand.base.errors import QuicksandError

from quicksand_tui.door.guest_input import GuestInput
from quicksand_tui.door.screen_viewer import Screen
from quicksand_tui.model.text import error_text

if TYPE_CHECKING:
    from quicksand_pixels import Chord

    from quicksand_tui.door.screen_here import ScreenPlace
    from quicksand_tui.door.service_protocol import ScreenSink

RETRY_S = 2.0
"""Seconds until a display that could not be reached is tried again."""

POLL_S = 0.2
"""Seconds between two looks for the machine that follows a revert."""


class EngineScreen:
    """The screen of one sandbox. Methods may be called from any thread; once closed, they do
    nothing."""

    def __init__(
        self,
        find: Callable[[], ScreenPlace],
        sink: ScreenSink,
        *,
        engine: asyncio.AbstractEventLoop,
        tasks: set[asyncio.Task[Any]],
    ) -> None:
        """``find`` finds the place of the screen, on the engine's loop."""
        self._find = find
        self._sink = sink
        self._engine = engine
        self._tasks = tasks
        self._order: dict[str, Any] = {}
        self._screen: Screen | None = None
        self._input: GuestInput | None = None
        self._main: asyncio.Task[Any] | None = None
        self._closed = False
        self._call(self._begin)

    # From any thread

    def order(self, **changes: Any) -> None:
        """Changes fields of `Order`."""
        self._do(lambda: self._change(changes))

    def press(self, chord: Chord) -> None:
        """Presses a key; any character that it types arrives."""
        self._tell(lambda found, _: found.press(chord))

    def type(self, text: str) -> None:
        """Types a text, after the keys that were pressed before."""
        self._tell(lambda found, _: found.type(text))

    def point(self, x: int, y: int, buttons: int) -> None:
        """Moves the pointer to a pixel, with these buttons of VNC held."""
        self._tell(lambda found, screen: found.point(x, y, buttons, screen.size[0]))

    def save(self, path: Path, told: Callable[[str], None]) -> None:
        """Writes the screen to a new PNG file; calls ``told`` with "" or the reason of a
        failure."""
        self._do(lambda: self._save(path, told))

    def close(self) -> None:
        self._closed = True
        self._call(self._end)

    def _call(self, function: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the app ends
            self._engine.call_soon_threadsafe(function)

    def _do(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._call(lambda: None if self._closed else self._start(make()))

    def _tell(self, what: Callable[[GuestInput, Screen], None]) -> None:
        """Passes input to the present machine; input while there is none is lost."""

        def tell() -> None:
            if self._input is not None and self._screen is not None and not self._closed:
                what(self._input, self._screen)

        self._call(tell)

    # On the engine's loop

    def _start(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._engine.create_task(what, name="quicksand-desktop")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _begin(self) -> None:
        self._main = self._engine.create_task(self._run(), name="quicksand-desktop")
        self._tasks.add(self._main)
        self._main.add_done_callback(self._tasks.discard)

    def _end(self) -> None:
        if self._main is not None:
            self._main.cancel()

    async def _run(self) -> None:
        place = self._find()
        while True:
            before = place.mark
            try:
                await self._show(place)
            except (QuicksandError, OSError) as error:
                self._sink.gone(error_text(error))
            await self._until_another(place, before)

    async def _until_another(self, place: ScreenPlace, before: object) -> None:
        """Waits for the machine of a revert or of another start; or a while, to try the same
        again."""
        deadline = self._engine.time() + RETRY_S
        while True:
            await asyncio.sleep(POLL_S)
            now = place.mark
            if now is not None and (now != before or self._engine.time() > deadline):
                return

    async def _show(self, place: ScreenPlace) -> None:
        """Shows the screen of one QEMU. Raises QuicksandError when it is gone."""
        async with place.open() as found, Screen.open(found.place) as screen:
            self._input = GuestInput(found.client, found.sandbox, self._sink.told)
            self._screen = screen
            tasks = {
                self._engine.create_task(self._input.run(), name="quicksand-desktop-keys"),
                self._engine.create_task(self._draw(screen), name="quicksand-desktop-pictures"),
            }
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._input = self._screen = None
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in done:
                task.result()

    async def _draw(self, screen: Screen) -> None:
        """Passes pictures on. Raises DisplayError when the screen is gone."""
        await screen.change(**self._order, drained=0)
        while True:
            self._sink.drawn(await screen.next_drawn())

    async def _change(self, changes: dict[str, Any]) -> None:
        kept = {name: value for name, value in changes.items() if name != "drained"}
        self._order.update(kept)
        if self._screen is not None:
            await self._screen.change(**changes)

    async def _save(self, path: Path, told: Callable[[str], None]) -> None:
        if self._screen is None:
            told("there is no screen now")
        else:
            told(await self._screen.save(path))
