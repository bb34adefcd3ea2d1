"""All uses of Textual's private API but those of the compositor (`textual_compositor.py`), and
nothing else. That API may change without notice.

Written for Textual 8.2. `tests/unit/kit/test_textual_private.py` has a canary for each name, which
says what breaks.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import threading
import time
from codecs import getincrementaldecoder
from collections import deque
from contextvars import copy_context
from typing import IO, TYPE_CHECKING, Any, cast

from rich.text import Text
from textual import constants, events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message
from textual.worker import WorkerFailed

from quicksand_driver.input_splitter import ESCAPE, ESCAPE_WAIT_S, InputSplitter, Piece
from quicksand_driver.line_speed import Line
from quicksand_driver.probe import ANSWER_LOCAL_S, ANSWER_SSH_S, POINTER_RESET, cell_pixels
from quicksand_driver.shown import Shown, erases_in_colour
from quicksand_driver.terminal_queries import DRAWN_QUESTION, ReplyReader, over_ssh

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from textual.app import App
    from textual.widget import Widget

    from quicksand_driver.probe import Probe
    from quicksand_driver.terminal_queries import TerminalAbilities

READ_SIZE = 64 * 1024
"""The most bytes of one read from the terminal."""
FRAME_MIN = 256
"""The least characters of a frame for which the terminal is asked whether it has arrived."""
WAIT_MAX_S = 1.0
"""Seconds after which output that waits for the line is tried again in any case."""
WRITTEN_AT_ONCE = 1024
"""Characters of one write to the terminal: after each, the speed of the line is known."""
IDLE_S = 0.1
"""Seconds between two checks whether the app has ended."""

_ALTERNATE_SCREEN = "\x1b[?1049h"
_POINTER = "\x1b]22;"
_NO_MOUSE_PIXELS = "\x1b[?1016l"
_KITTY_POP = "\x1b[<u"
_KITTY_PUSH = "\x1b[>25u"
"""The sequence that Textual writes at its start: flags 1, 8 and 16 of kitty's keyboard protocol."""
_KITTY_FOR_PANES = "\x1b[>5u"
"""Flags 1 and 4: the most that programs in panes can have. Each gets the flags it asked for."""


class RawInput(Message):
    """Keys for the focused pane, byte for byte."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


class CommandTyped(Message):
    """The next key is a command to the panes; keys after it wait until it is carried out."""


class TerminalAnswered(Message):
    """The terminal has answered a query."""

    def __init__(self, abilities: TerminalAbilities) -> None:
        super().__init__()
        self.abilities = abilities


class TerminalTaken(Message):
    """The app has the terminal, at its start or again: nothing that was drawn before is shown."""


class PatientFile:
    """The file that Textual's writer thread writes to. It ignores a terminal that is gone: an error
    would end the thread, and the app would wait for ever for the thread's queue to empty."""

    def __init__(self, file: IO[str], line: Line) -> None:
        self._file = file
        self._line = line

    def write(self, text: str) -> None:
        for at in range(0, len(text), WRITTEN_AT_ONCE):
            part = text[at : at + WRITTEN_AT_ONCE]
            begun = time.monotonic()
            with contextlib.suppress(OSError):
                self._file.write(part)
                self._file.flush()
            self._line.wrote(len(part.encode()), time.monotonic() - begun)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


class RawDriver(LinuxDriver):
    """A driver that, while `raw`, sends keys to the app as `RawInput` messages instead of key
    events. Answers of the terminal never become keys, however late they come."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        if size is None:
            # For the first layout, which may come before the app is told the size.
            self._size = self._get_terminal_size()
        self._is_far = over_ssh(os.environ)
        """A network lies between the system and the terminal."""
        self.line = Line()
        """Output on its way to the terminal."""
        file = PatientFile(cast("IO[str]", self._file), self.line)
        self._file = file  # type: ignore[assignment]
        self._splitter = InputSplitter()
        self._is_drawn = False
        """The alternate screen is already shown."""
        self._again: asyncio.TimerHandle | None = None
        self._shown = Shown(erases=erases_in_colour(os.environ))
        self.has_terminal = False
        """The terminal is the app's, not another program's."""
        self.last_images: dict[object, Callable[[], bytes]] = {}
        """Calls whose bytes delete the app's images before another program gets the terminal, by
        the images' owners."""
        self._drawn: deque[Callable[[], object]] = deque()
        """Calls to make at the terminal's next answers, one each."""
        self._owes_nothing = threading.Event()
        self._owes_nothing.set()
        self._probe: Probe | None = getattr(app, "probe", None)
        self._replies = ReplyReader(expects=False) if self._probe is None else self._probe.reader

    def _get_terminal_size(self) -> tuple[int, int]:
        """Returns the terminal's real size. Textual prefers COLUMNS and LINES, which do not follow
        changes, and are wrong in a terminal inside another one."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self.fileno)
            if columns > 0 and rows > 0:
                return columns, rows
        size: tuple[int, int] = super()._get_terminal_size()
        return size

    def forget_shown(self) -> None:
        """Forgets what the terminal shows, so that all output is drawn."""
        self._shown.forget()

    def start_application_mode(self) -> None:
        self._is_drawn = self._probe is not None and self._probe.taken_over
        self._shown.forget()
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._is_drawn = False
        if self._probe is not None and self._writer_thread is not None:
            self._probe.taken_over = True
            if self._probe.attributes is not None:
                self.attrs_before = self._probe.attributes
        if self.raw:
            self._report_keys(_KITTY_FOR_PANES)  # after a stop, Textual has pushed its flags again
        self._drawn.clear()
        self.line.restart()
        self._owes_nothing.set()
        self.has_terminal = True
        self.send_message(TerminalTaken())

    def stop_application_mode(self) -> None:
        if self._mouse_pixels:
            self.write(_NO_MOUSE_PIXELS)
        self.write_images(b"".join(last() for last in self.last_images.values()))
        self.write(POINTER_RESET)
        super().stop_application_mode()
        self.has_terminal = False
        if self._probe is not None:
            self._probe.taken_over = False

    def disable_input(self) -> None:
        # Late answers of the terminal would be input of the program that reads next.
        if self.has_terminal:
            self._owes_nothing.wait(ANSWER_SSH_S if over_ssh(os.environ) else ANSWER_LOCAL_S)
        super().disable_input()

    # Images are no text, but go the same way, so that they are in order with it.

    def write_images(self, data: bytes) -> bool:
        """Writes bytes that draw images or delete them; returns False while another program has the
        terminal, which then shows none of ours."""
        if self.has_terminal and data:
            self._send(data.decode("ascii"))
        return self.has_terminal

    def when_drawn(self, call: Callable[[], object]) -> bool:
        """Calls ``call``, on the thread that reads, once the terminal has drawn all earlier output;
        returns False if this terminal does not tell."""
        if not (self.has_terminal and self._replies.answered):
            return False
        self._drawn.append(call)
        self._owes_nothing.clear()
        self._send(DRAWN_QUESTION.decode("ascii"))
        return True

    @property
    def cell_size(self) -> tuple[int, int] | None:
        """The width and height of a cell in pixels, as the system knows it now."""
        return cell_pixels(self.fileno)

    @property
    def tells_pixels(self) -> bool:
        """Whether the terminal reports the mouse in pixels; places in cells then have fractions."""
        return self._mouse_pixels

    # Textual stops and continues inside signal handlers. The code that they interrupt may hold the
    # lock of the output, which the handlers also take; so the loop calls them instead.

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        if self._auto_restart and not self._must_signal_resume:
            # After a SIGSTOP, the shell has changed the terminal, and the app has not restored it.
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application()

    def write(self, data: str) -> None:
        # Some terminals forget the saved cursor when the alternate screen is set twice.
        if self._is_drawn and data == _ALTERNATE_SCREEN:
            return
        # Textual shapes the pointer even after it has given the terminal back.
        if data.startswith(_POINTER) and not self.has_terminal:
            return
        slimmed = self._shown.slim(data, *self._get_terminal_size())
        self._send(slimmed)
        is_slow = self._is_far or self.line.bytes_per_s is not None
        if len(slimmed) >= FRAME_MIN and is_slow and self.line.may_ask:
            # Noted first: the answer may come at once.
            self.line.ask()
            if not self.when_drawn(self.line.answer):
                self.line.answer()

    def _send(self, data: str) -> None:
        self.line.put(len(data.encode()))
        super().write(data)

    def when_free(self, call: Callable[[], object]) -> None:
        """Calls ``call`` on the loop when the line can take the next frame."""
        context = copy_context()

        def later() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(call, context=context)

        if self._again is not None:
            self._again.cancel()
        self._again = self._loop.call_later(WAIT_MAX_S, call, context=context)
        self.line.when_free(later)

    @property
    def mouse(self) -> bool:
        """Whether the app has the mouse; otherwise the terminal has it, to select text."""
        return self._mouse

    @mouse.setter
    def mouse(self, mouse: bool) -> None:
        if mouse != self._mouse:
            self._mouse = True  # otherwise Textual writes nothing
            if mouse:
                self._enable_mouse_support()
                if self._mouse_pixels:
                    self._enable_mouse_pixels()
            else:
                self._disable_mouse_support()
            self._mouse = mouse

    @property
    def raw(self) -> bool:
        return self._splitter.raw

    @raw.setter
    def raw(self, raw: bool) -> None:
        if raw != self._splitter.raw:
            self._splitter.raw = raw
            if raw:
                self._report_keys(_KITTY_FOR_PANES)
            else:
                self._report_keys(_KITTY_PUSH)

    def _report_keys(self, push: str) -> None:
        """Sets how a terminal with kitty's keyboard protocol reports keys."""
        if self._writer_thread is not None and not constants.DISABLE_KITTY_KEY:
            self.write(_KITTY_POP + push)

    @property
    def prefix(self) -> bytes:
        """The prefix key of the panes, as the terminal sends it."""
        return self._splitter.prefix

    @prefix.setter
    def prefix(self, prefix: bytes) -> None:
        self._splitter.prefix = prefix

    def replay(self, data: bytes) -> None:
        """Passes keys for a pane to the app as key events."""
        parser = XTermParser(self._debug)
        for message in parser.feed(data.decode("utf-8", "replace")):
            self.process_message(message)

    def run_input_thread(self) -> None:
        """Reads input and passes it on, until the driver ends."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode

        def hand_out(pieces: list[Piece]) -> None:
            for piece in pieces:
                if piece.for_pane:
                    self.send_message(RawInput(piece.data))
                    continue
                if piece.is_command:
                    self.send_message(CommandTyped())
                if piece.data == ESCAPE:  # Textual would await more, and take ESC and s for ^ and s
                    self.process_message(events.Key("escape", "\x1b"))
                    continue
                for message in parser.feed(decode(piece.data)):
                    self.process_message(message)

        if self._probe is not None:
            hand_out(self._splitter.feed(self._probe.take_typed()))
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                waits = self._splitter.waits or self._replies.waits
                wait = ESCAPE_WAIT_S if waits else IDLE_S
                if selector.select(wait):
                    data = os.read(self.fileno, READ_SIZE)
                    if not data:
                        break  # the terminal is gone; SIGHUP ends the app
                    hand_out(self._splitter.feed(self._without_answers(data)))
                elif key := self._replies.tick():
                    hand_out(self._splitter.feed(key))
                hand_out(self._splitter.tick())
                for message in parser.tick():
                    self.process_message(message)
        for _ in parser.feed(""):
            pass

    def _without_answers(self, data: bytes) -> bytes:
        if self._probe is not None and self._probe.late:
            self._replies.stop_expecting()
        before, answers = self._replies.abilities, self._replies.answers
        keys = self._replies.feed(data)
        for _ in range(self._replies.answers - answers):
            if self._drawn:
                self._drawn.popleft()()
        if not self._drawn:
            self._owes_nothing.set()
        if self._replies.abilities != before:
            self.send_message(TerminalAnswered(self._replies.abilities))
        return keys


def driver_of(app: App[Any]) -> RawDriver | None:
    """Returns the app's own driver; None in tests and in a browser."""
    driver = app._driver
    return driver if isinstance(driver, RawDriver) else None


def is_batching(app: App[Any]) -> bool:
    """Whether the app is drawing nothing (`App.batch_update`)."""
    return app._batch_count > 0


def keep_clipboard(app: App[Any], text: str) -> None:
    """Keeps a text for pasting in this app, without sending it to the terminal."""
    app._clipboard = text


def end_with(app: App[Any], words: Callable[[BaseException], str]) -> None:
    """Has the app end with ``words`` for an exception that nobody has handled. Textual writes its
    traceback with all local variables."""
    handle = app._handle_exception
    told: list[str] = []

    def note(error: Exception) -> None:
        told.append(words(error.error if isinstance(error, WorkerFailed) else error))
        handle(error)

    def end() -> None:
        app.panic(*map(Text, told if len(told) == 1 else ()))  # one is enough to read

    app._handle_exception = note  # type: ignore[method-assign]
    app._fatal_error = end  # type: ignore[method-assign]


def action_bound_to(widget: Widget, key: str) -> str | None:
    """Returns the action that the widget itself binds to a key."""
    bound = widget._bindings.key_to_bindings.get(key, [])
    return bound[0].action if bound else None


def forward(app: App[Any], event: events.Event) -> None:
    """Sends an event to the widget with the focus, as the app does with events just read."""
    (app.focused or app.screen)._forward_event(event)
