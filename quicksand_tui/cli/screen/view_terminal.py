"""Our terminal while it shows a guest's screen: its modes, its size, its drawings and its input. It
is restored in every way of ending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections import deque
from typing import TYPE_CHECKING, Self

from quicksand_pixels import ESCAPE_WAIT_S, USUAL_CELL, Grid, Pointer, ScreenInput, Way

from quicksand_tui.cli.fd_streams import FdWriter
from quicksand_tui.cli.guests.terminal import STDIN, STDOUT, terminal_size
from quicksand_tui.kit.probe import RESET, cell_pixels
from quicksand_tui.kit.terminal_queries import DRAWN_QUESTION

if TYPE_CHECKING:
    from quicksand_pixels import Chord, Event

    from quicksand_tui.kit.probe import Probe

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
        self._entering = asyncio.ensure_future(self._enter())
        self.resized.set()
