"""A guest's screen for the app, in both directions, and recordings of it. It lives on the
engine's loop, is ordered from the UI's thread, and goes on after a revert. A process encodes its
pictures."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import deque
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from quicksand.base.errors import DisplayError, QuicksandError
from quicksand.base.paths import paths
from quicksand.display.place import place_text
from quicksand.records.registry import Registry
from quicksand.sandbox import Sandbox
from quicksand_pixels import Chord, strokes
from quicksand_vnc import STROKES, can_be_typed

from quicksand_tui.door.screen_messages import HEAD_BYTES, Drawn, Kind, Order, parse_head
from quicksand_tui.model.amounts import seconds_text, size_text
from quicksand_tui.model.text import clean, error_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
    from pathlib import Path

    from quicksand.display.place import Place, RfbClient
    from quicksand.display.recording import Recorded, Recording

    from quicksand_tui.door.service_protocol import ScreenSink


WAITING_MAX = 10_000
"""The most keys and places that wait for a guest that takes none; later ones are dropped."""

TEXT_MAX = 64 * 1024
"""The most characters of a text that wait, as many as `Sandbox.type_text` takes; later ones are
dropped."""


class _Place(NamedTuple):
    """The next place of the pointer."""

    x: int
    y: int
    width: int
    """Pixels of the guest's screen, on which `x` and `y` lie."""
    buttons: int
    moves: bool
    """The buttons are as before, so that only the end of a movement matters."""


class GuestInput:
    """The way to one QEMU. `run` sends the input that the other methods take, which never wait."""

    def __init__(self, client: RfbClient, sandbox: Sandbox, told: Callable[[str], None]) -> None:
        """``told`` is called with the reason why a text could not be typed."""
        self._client = client
        self._sandbox = sandbox
        self._told = told
        self._waiting: deque[Chord | str | _Place] = deque()
        self._more = asyncio.Event()
        self._buttons = 0

    def press(self, chord: Chord) -> None:
        """Presses a key and releases it."""
        text = _text_of(chord)
        if text and (text not in STROKES or isinstance(self._last, str)):
            self.type(text)
        else:
            self._put(chord)

    def type(self, text: str) -> None:
        """Types a text, at the pace at which guests take it, without characters that no key
        types."""
        text = "".join(filter(can_be_typed, text.replace("\r\n", "\n").replace("\r", "\n")))
        last = self._last
        if isinstance(last, str):
            self._waiting[-1] = (last + text)[:TEXT_MAX]
        elif text:
            self._put(text[:TEXT_MAX])

    def point(self, x: int, y: int, buttons: int, width: int) -> None:
        """Moves the pointer to a pixel of a screen of this width, with VNC's ``buttons`` held."""
        moves, self._buttons = buttons == self._buttons, buttons
        last = self._last
        if moves and isinstance(last, _Place) and last.moves:
            self._waiting.pop()
        self._put(_Place(x, y, width, buttons, moves))

    @property
    def _last(self) -> Chord | str | _Place | None:
        return self._waiting[-1] if self._waiting else None

    def _put(self, what: Chord | str | _Place) -> None:
        if len(self._waiting) < WAITING_MAX:
            self._waiting.append(what)
            self._more.set()

    async def run(self) -> None:
        """Sends the input until it is cancelled. Raises DisplayError when the guest is gone."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                await self._send(self._waiting.popleft())

    async def _send(self, what: Chord | str | _Place) -> None:
        if isinstance(what, _Place):
            await self._client.pointer(what.x, what.y, what.buttons, width=what.width)
        elif isinstance(what, Chord):
            for stroke in strokes(what):
                await self._client.key(stroke.keysym, stroke.down)
        else:
            await self._try(self._sandbox.type_text(what))

    async def _try(self, typing: Awaitable[None]) -> None:
        try:
            await typing
        except QuicksandError as error:
            why = error.args[0] if error.args else error
            self._told(clean(f"not typed: {why}"))


def _text_of(chord: Chord) -> str:
    """Returns the character that a chord types; "" if it is a key, or a command."""
    if chord.control or chord.alt or chord.super or len(chord.key) != 1:
        return ""
    return chord.key


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


class OpenScreen(NamedTuple):
    """The screen of a machine that runs."""

    place: Place
    """The source of pictures."""
    client: RfbClient
    """Takes keys and the pointer."""
    sandbox: Sandbox
    """Types characters that have no key."""


class ScreenPlace(Protocol):
    """A sandbox whose screen is to be shown, and shown again."""

    @property
    def mark(self) -> object:
        """A value that tells its present machine from those before and after it; None if none shows
        a screen now. Never raises."""

    def open(self) -> AbstractAsyncContextManager[OpenScreen]:
        """Connects to its screen. Raises QuicksandError."""


class ScreenHere:
    """A sandbox of this machine."""

    def __init__(self, sandbox_id: str) -> None:
        self._id = sandbox_id

    @property
    def mark(self) -> object:
        machine = Registry(paths()).machine(self._id)
        with contextlib.suppress(OSError):  # the machine is looked at again
            return machine if machine.vnc_socket.exists() else None
        return None

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[OpenScreen]:
        machine = Registry(paths()).machine(self._id)
        with contextlib.closing(Sandbox.open(self._id)) as sandbox:
            async with sandbox.display() as client:
                yield OpenScreen(machine, client, sandbox)


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
