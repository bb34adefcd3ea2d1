"""`quicksand-tui view`: a guest's screen in the terminal, with its mouse and keys. The terminal,
its modes and its drawings are restored in every way of ending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import time
import tty
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self

import click
from quicksand.base.errors import AgentUnreachableError, DisplayError, QuicksandError
from quicksand.base.paths import paths
from quicksand.records.registry import Registry
from quicksand.things.status import Status
from quicksand_driver.probe import RESET, Probe, cell_pixels
from quicksand_driver.terminal_queries import DRAWN_QUESTION, in_multiplexer
from quicksand_pixels import (
    ESCAPE_WAIT_S,
    USUAL_CELL,
    Chord,
    Command,
    Focus,
    Grid,
    Pasted,
    Pointer,
    ScreenInput,
    Way,
    choose_colours,
    choose_way,
)

from quicksand_tui.cli.click_commands import command_of, parse_keys
from quicksand_tui.cli.guests.executing import FdWriter
from quicksand_tui.cli.guests.terminal import STDIN, STDOUT, require_terminal, terminal_size
from quicksand_tui.cli.output import Exit
from quicksand_tui.cli.runner import attached, run_in_sandbox, why_gone
from quicksand_tui.door.engine_screen import GuestInput, Screen
from quicksand_tui.home.picture_path import new_picture
from quicksand_tui.home.state import terminals_file
from quicksand_tui.model.text import ascii_only, clean, error_text

if TYPE_CHECKING:
    from quicksand.records.layout import MachineDir
    from quicksand.sandbox import Sandbox
    from quicksand_pixels import Event

    from quicksand_tui.cli.runner import Signals

READ_SIZE = 64 * 1024
EVENTS_MAX = 10_000
"""The most events that wait for a guest that does not take them; later ones are dropped."""

FENCE_S = 2.0
"""Seconds to wait for the terminal's answer after a picture; then it counts as silent."""

LEAVE_S = 1.0
"""Seconds to wait at the end for a terminal that takes nothing."""

_ENTER = (
    b"\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
    b"\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1006h\x1b[?1004h\x1b[?2004h"
)
_MOUSE_PIXELS = b"\x1b[?1016h"
_KITTY_KEYS = b"\x1b[>1u"
"""Tells Escape and Ctrl with any key apart; characters stay characters."""

_KITTY_DELETE = b"\x1b_Ga=d,d=A,q=2\x1b\\"
"""Deletes all images on this screen, which is the alternate one and so ours alone."""


class ViewTerminal:
    """Used with ``async with``, within a `Probe` that owns the terminal."""

    def __init__(self, probe: Probe, way: Way, prefix: Chord) -> None:
        self._probe = probe
        self._way = way
        self._writer = FdWriter(STDOUT)
        cell = self._cell() if probe.abilities.mouse_pixels else None
        self._reader = ScreenInput(prefix, mouse_cell=cell)
        self._events: deque[Event] = deque()
        self._more = asyncio.Event()
        self._buttons = 0
        self._moved = False
        """The last event is the mouse's, with the same buttons as before."""
        self._fenced = asyncio.Event()
        self._answers = probe.reader.answered
        """Whether the terminal answers."""
        self._owes = False
        """An answer to the fence is on its way."""
        self._drawing = asyncio.Lock()
        self._hung_up = False
        self.resized = asyncio.Event()
        """The size has changed, or the screen was lost to a stop."""

    async def __aenter__(self) -> Self:
        await self._enter()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGWINCH, self._changed)
        loop.add_signal_handler(signal.SIGCONT, self._go_on)
        self._take(self._probe.take_typed())
        loop.add_reader(STDIN, self._read)
        return self

    async def __aexit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_signal_handler(signal.SIGCONT)
        try:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    delete = _KITTY_DELETE if self._way is Way.KITTY else b""
                    await self._writer.write(b"\x1b[?2026l" + delete + RESET.encode())
                    await self._writer.close()
                    self._probe.taken_over = False
                    if self._owes:  # otherwise the shell would get the answer as input
                        await self._fenced.wait()
        finally:
            loop.remove_reader(STDIN)
            if self._probe.attributes is not None:
                with contextlib.suppress(termios.error):  # the terminal is gone
                    termios.tcsetattr(STDIN, termios.TCSANOW, self._probe.attributes)

    @property
    def grid(self) -> Grid:
        """Returns the area for the picture: all but the last row."""
        columns, rows = terminal_size()
        return Grid(columns, max(1, rows - 1), *self._cell())

    def _cell(self) -> tuple[int, int]:
        """Returns the size of a cell in pixels: the system's, the terminal's, or the usual one."""
        return cell_pixels(STDOUT) or self._probe.abilities.cell_size or USUAL_CELL

    # Drawing

    async def draw(self, data: bytes) -> None:
        """Draws a picture, and waits until the terminal has drawn it. Raises OSError."""
        async with self._drawing:
            if self._probe.abilities.sync_output:
                data = b"\x1b[?2026h" + data + b"\x1b[?2026l"
            self._fenced.clear()
            self._owes = self._answers
            await self._writer.write(data + (DRAWN_QUESTION if self._answers else b""))
            await self._writer.drain()
            if not self._answers:
                return
            try:
                async with asyncio.timeout(FENCE_S):
                    await self._fenced.wait()
            except TimeoutError:
                self._answers = False

    async def show_bar(self, text: str) -> None:
        """Shows a line at the bottom. Raises OSError."""
        columns, rows = terminal_size()
        line = f"\x1b[{rows};1H\x1b[0;7m{text[:columns]:{columns}}\x1b[m"
        async with self._drawing:
            await self._writer.write(line.encode(errors="replace"))

    async def clear(self) -> None:
        """Clears the screen. Raises OSError."""
        async with self._drawing:
            await self._writer.write(b"\x1b[m\x1b[2J")

    # Input

    async def next_events(self) -> list[Event]:
        """Waits for the user's input. Raises EOFError when the terminal is gone."""
        await self._more.wait()
        self._more.clear()
        if self._hung_up:
            raise EOFError
        events = list(self._events)
        self._events.clear()
        return events

    @property
    def after_prefix(self) -> bool:
        return self._reader.after_prefix

    def _read(self) -> None:
        try:
            data = os.read(STDIN, READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(STDIN)
            self._hung_up = True
            self._more.set()
            return
        replies = self._probe.reader
        answers = replies.answers
        self._take(replies.feed(data))
        if replies.answers > answers:
            self._owes = False
            self._fenced.set()
        self._tick_later()

    def _tick_later(self) -> None:
        if self._reader.waits or self._probe.reader.waits:
            asyncio.get_running_loop().call_later(ESCAPE_WAIT_S, self._tick)

    def _tick(self) -> None:
        self._take(self._probe.reader.tick())
        self._note(self._reader.tick())
        self._tick_later()

    def _take(self, data: bytes) -> None:
        if data:
            self._note(self._reader.feed(data))

    def _note(self, found: list[Event]) -> None:
        for event in found:
            moves = isinstance(event, Pointer) and event.buttons == self._buttons
            if isinstance(event, Pointer):
                self._buttons = event.buttons
            if moves and self._moved and self._events:
                self._events[-1] = event  # only the end of a movement matters
            elif len(self._events) < EVENTS_MAX:
                self._events.append(event)
            self._moved = moves
        self._more.set()

    # Modes

    async def _enter(self) -> None:
        tty.setraw(STDIN, termios.TCSANOW)
        self._probe.taken_over = True
        abilities = self._probe.abilities
        await self._writer.write(
            _ENTER
            + (_MOUSE_PIXELS if self._reader.mouse_cell is not None else b"")
            + (_KITTY_KEYS if abilities.kitty_keyboard else b"")
        )

    def _changed(self) -> None:
        if self._reader.mouse_cell is not None:
            self._reader.mouse_cell = self._cell()
        self.resized.set()

    def _go_on(self) -> None:
        """Takes the terminal again after a stop, during which the shell had it."""
        self._entering = asyncio.ensure_future(self._enter_again())
        self.resized.set()

    async def _enter_again(self) -> None:
        with contextlib.suppress(termios.error, OSError):  # the terminal has gone
            await self._enter()


INTERVAL_S = 1 / 30
"""The least seconds between two pictures."""

UNFOCUSED_S = 0.5
"""The least seconds between two pictures while the terminal's window lacks the focus."""

FOLLOW_S = 30.0
"""Seconds to wait for the machine that follows a revert."""

RETRY_S = 2.0
"""Seconds until a display that could not be reached is tried again."""

POLL_S = 0.05
STATE_S = 0.5
"""Seconds between two looks whether the sandbox is paused."""

MESSAGE_S = 4.0
"""Seconds for which a message is shown."""

ZOOM = 1.25
MOVE = 0.5
"""The part of the view by which an arrow moves it."""

MOVES = {"left": (-MOVE, 0.0), "right": (MOVE, 0.0), "up": (0.0, -MOVE), "down": (0.0, MOVE)}


@command_of("view")
def view_command(name: str, graphics: str, detach_keys: str) -> int:
    """Show a sandbox's screen in the terminal, with mouse and keyboard.

    The sandbox needs a display (`run --display`). Keys and the mouse go to the guest. Ctrl-] and
    then d leaves the view, + - 0 and arrows zoom and move it, s saves a PNG in your pictures. The
    view follows a revert. It is drawn with kitty's graphics or sixels if the terminal has them,
    else with half cells. In tmux and screen it is drawn with half cells unless --graphics says
    otherwise.
    """
    prefix, leave = _parse_leaving(parse_keys(detach_keys), detach_keys)
    require_terminal()

    async def check(_: Signals) -> int:
        async with attached(name, with_display=True) as sandbox:
            sandbox.display()  # refuses before the terminal is taken
        return Exit.OK

    if code := run_in_sandbox(check):
        return code
    with Probe(os.environ, terminals_file(), fd_out=STDOUT) as probe:
        abilities = probe.wait()
        way = choose_way(graphics, abilities.graphics, in_multiplexer=in_multiplexer(os.environ))

        async def main(signals: Signals) -> int:
            async with (
                attached(name, with_display=True) as sandbox,
                ViewTerminal(probe, way, prefix) as terminal,
            ):
                return await View(sandbox, terminal, way, prefix, leave).run()

        return run_in_sandbox(main)


def _parse_leaving(keys: bytes, text: str) -> tuple[Chord, str]:
    """Returns the prefix and the key after it that leaves. Raises UsageError."""
    chords = ScreenInput(Chord("")).feed(keys)
    if len(chords) == 2:
        prefix, leave = chords
        if isinstance(prefix, Chord) and isinstance(leave, Chord) and prefix.control:
            return prefix, leave.key
    raise click.UsageError(f"{text!r} is not a key with ctrl and another one, as in 'ctrl-],d'")


class View:
    """Shows one sandbox until the user leaves or the sandbox ends."""

    def __init__(
        self, sandbox: Sandbox, terminal: ViewTerminal, way: Way, prefix: Chord, leave: str
    ) -> None:
        self._sandbox = sandbox
        self._terminal = terminal
        self._way = way
        self._prefix = prefix
        self._leave = leave
        self._message = ""
        self._paused = False
        """The sandbox is paused: QEMU drops all input."""
        self._buttons = 0
        self._place = (0, 0)
        """The last place of the pointer in the guest's screen."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> int:
        """Shows the sandbox; returns the exit status. Raises a QuicksandError that tells why the
        guest is gone."""
        registry = Registry(paths())
        while True:
            machine = registry.machine(self._sandbox.id)
            try:
                await self._show_machine(registry, machine)
                return 0
            except DisplayError as error:
                if not await self._follow(registry, machine, error):
                    return 0

    async def _follow(self, registry: Registry, machine: MachineDir, error: DisplayError) -> bool:
        """Waits for the machine after a revert; returns False if the user leaves. Raises an error
        if there is none."""
        waiting = asyncio.create_task(self._until_another(registry, machine, error))
        leaving = asyncio.create_task(self._until_left())
        text = f" The display is gone; waiting for another. {self._how_to_leave}"
        await self._terminal.show_bar(text)
        try:
            await asyncio.wait({waiting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return False
            await waiting
            return True
        finally:
            waiting.cancel()
            leaving.cancel()
            await asyncio.wait({waiting, leaving})

    async def _until_left(self) -> None:
        """Waits until the user leaves; other keys are for no screen."""
        while True:
            try:
                events = await self._terminal.next_events()
            except EOFError:
                return
            if any(event == Command(self._leave) for event in events):
                return

    @property
    def _how_to_leave(self) -> str:
        return f"ctrl-{self._prefix.key} {self._leave} leaves"

    async def _until_another(
        self, registry: Registry, machine: MachineDir, error: DisplayError
    ) -> None:
        deadline = time.monotonic() + FOLLOW_S
        again = time.monotonic() + RETRY_S
        while True:
            entry = registry.inspect(self._sandbox.id)
            now = registry.machine(self._sandbox.id)
            is_due = now != machine or time.monotonic() > again
            if is_due and now.vnc_socket.exists() and entry is not None and entry.is_live:
                return
            if entry is None or not entry.is_live or time.monotonic() > deadline:
                raise await self._why_gone(error)
            await asyncio.sleep(POLL_S)

    async def _why_gone(self, error: DisplayError) -> QuicksandError:
        unreachable = AgentUnreachableError(str(error))
        found = await why_gone(self._sandbox, unreachable)
        return error if found is unreachable else found

    async def _show_machine(self, registry: Registry, machine: MachineDir) -> None:
        """Shows the screen of one QEMU until the user leaves. Raises DisplayError."""
        async with (
            self._sandbox.display() as client,
            Screen.open(
                machine, colours=choose_colours(os.environ).value, ascii_only=ascii_only()
            ) as screen,
        ):
            self._terminal.resized.set()
            sharp = self._way is not Way.HALF
            await screen.change(way=self._way.value, interval_s=INTERVAL_S, sharp=sharp)
            guest = GuestInput(client, self._sandbox, self._tell_soon)
            tasks = {
                asyncio.create_task(self._show(screen), name="quicksand-view"),
                asyncio.create_task(self._act(screen, guest), name="quicksand-view-input"),
                asyncio.create_task(guest.run(), name="quicksand-view-keys"),
                asyncio.create_task(self._resize(screen), name="quicksand-view-size"),
                asyncio.create_task(self._watch_state(registry), name="quicksand-view-state"),
            }
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                tasks |= self._tasks
                for task in tasks:
                    task.cancel()
                await asyncio.wait(tasks)
            for task in done:
                task.result()

    async def _show(self, screen: Screen) -> None:
        count = 0
        while True:
            drawn = await screen.next_drawn()
            await self._terminal.draw(drawn.data)
            count += 1
            await screen.change(drained=count)

    async def _resize(self, screen: Screen) -> None:
        while True:
            await self._terminal.resized.wait()
            self._terminal.resized.clear()
            await self._terminal.clear()
            await screen.change(grid=tuple(self._terminal.grid), again=screen.order.again + 1)
            await self._show_bar()

    async def _watch_state(self, registry: Registry) -> None:
        """Tells when the sandbox is paused, and when it goes on."""
        while True:
            entry = await asyncio.to_thread(registry.inspect, self._sandbox.id)
            paused = entry is not None and entry.status is Status.PAUSED
            if paused != self._paused:
                self._paused = paused
                await self._show_bar()
            await asyncio.sleep(STATE_S)

    async def _act(self, screen: Screen, guest: GuestInput) -> None:
        """Passes on the user's input, until that is to leave."""
        while True:
            prefixed = self._terminal.after_prefix
            try:
                events = await self._terminal.next_events()
            except EOFError:
                return
            for event in events:
                if not await self._act_on(event, screen, guest):
                    return
            if prefixed != self._terminal.after_prefix:
                await self._show_bar()

    async def _act_on(self, event: Event, screen: Screen, guest: GuestInput) -> bool:
        """Carries out an event; returns whether to go on."""
        match event:
            case Chord():
                guest.press(event)
            case Pasted():
                guest.type(event.text)
            case Pointer():
                self._point(event, screen, guest)
            case Focus():
                await screen.change(interval_s=INTERVAL_S if event.here else UNFOCUSED_S)
            case Command():
                if event.key == self._leave:
                    return False
                await self._command(event.key, screen)
        return True

    def _point(self, event: Pointer, screen: Screen, guest: GuestInput) -> None:
        view = screen.order.view(*screen.size)
        place = view.frame_at(event.column, event.row) if view is not None else None
        if place is None and event.buttons == self._buttons:
            return
        # A button that is released beside the picture is released at its last place.
        self._place = self._place if place is None else place
        if place is None:
            event = event._replace(buttons=event.buttons & self._buttons)
        self._buttons = event.buttons
        guest.point(*self._place, event.buttons, screen.size[0])

    async def _command(self, key: str, screen: Screen) -> None:
        view = screen.order.view(*screen.size)
        if view is None:
            return
        if key in ("+", "="):
            view = view.zoomed(ZOOM)
        elif key == "-":
            view = view.zoomed(1 / ZOOM)
        elif key == "0":
            view = view.zoomed(0)
        elif key in MOVES:
            view = view.moved(*MOVES[key])
        elif key == "s":
            self._start(self._save(screen))
            return
        else:
            return
        await screen.change(zoom=view.zoom, centre=view.centre)
        await self._show_bar()

    async def _save(self, screen: Screen) -> None:
        try:
            path = await asyncio.to_thread(new_picture, self._sandbox.name, ".png")
        except OSError as error:
            await self._tell(f"not saved: {error_text(error)}")
            return
        why = await screen.save(path)
        await self._tell(f"not saved: {why}" if why else f"saved to {clean(path)}")

    def _start(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(what, name="quicksand-view-message")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell_soon(self, message: str) -> None:
        self._start(self._tell(message))

    async def _tell(self, message: str) -> None:
        """Shows a message for a while."""
        self._message = message
        await self._show_bar()
        await asyncio.sleep(MESSAGE_S)
        if self._message == message:
            self._message = ""
            await self._show_bar()

    async def _show_bar(self) -> None:
        prefix = f"ctrl-{self._prefix.key}"
        name = clean(self._sandbox.name)
        if self._terminal.after_prefix:
            keys = f"{self._leave} leaves · + - 0 zoom · arrows move · s saves a PNG"
            text = f" {name} · {prefix} … {keys}"
        elif self._message:
            text = f" {name} · {self._message}"
        elif self._paused:
            text = f" {name} · paused: what is typed is lost · {self._how_to_leave}"
        else:
            text = f" {name} · {self._how_to_leave} · prefix {prefix}: zoom, save"
        await self._terminal.show_bar(text.replace("·", "-") if ascii_only() else text)
