"""Textual's driver for terminals, with keys for the guest passed by."""

from __future__ import annotations

import contextlib
import os
import selectors
from codecs import getincrementaldecoder
from typing import IO, TYPE_CHECKING, cast

from textual import constants
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from quicksand_tui.panes.raw_input import ESCAPE_WAIT_S, InputSplitter, Piece
from quicksand_tui.panes.slim import slim
from quicksand_tui.probe import ReplyReader, TerminalAbilities

if TYPE_CHECKING:
    from quicksand_tui.probing import Probe

READ_SIZE = 64 * 1024
IDLE_S = 0.1
"""Between two looks whether the app has ended."""

_ALTERNATE_SCREEN = "\x1b[?1049h"
_NO_MOUSE_PIXELS = "\x1b[?1016l"
_KITTY_POP = "\x1b[<u"
_KITTY_PUSH = "\x1b[>25u"
"""As Textual asks for it at the start: its flags 1, 8 and 16 (kitty's keyboard protocol)."""


class RawInput(Message):
    """Keys for the pane that has the focus, byte for byte."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self.data = data


class CommandTyped(Message):
    """The next key is a command to the panes: what is typed behind it waits until that is done."""


class TerminalAnswered(Message):
    """More is known of the terminal."""

    def __init__(self, abilities: TerminalAbilities) -> None:
        super().__init__()
        self.abilities = abilities


class PatientFile:
    """What Textual's thread writes to. A terminal that is gone is no reason for the thread to end:
    the app would wait for it for ever, since nobody takes what it has to say."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()


class RawDriver(LinuxDriver):
    """While `raw`, keys come as `RawInput` messages to the app instead of key events. What the
    terminal answers never becomes a key, however late it comes."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._file = PatientFile(cast("IO[str]", self._file))  # type: ignore[assignment]
        self._splitter = InputSplitter()
        self._is_drawn = False
        """The alternate screen is there already."""
        self._probe: Probe | None = getattr(app, "probe", None)
        self._replies = ReplyReader(expects=False) if self._probe is None else self._probe.reader

    def _get_terminal_size(self) -> tuple[int, int]:
        """As the terminal has it. COLUMNS and LINES, which Textual believes first, know of no
        change, nor of a terminal within this one."""
        with contextlib.suppress(OSError):
            columns, rows = os.get_terminal_size(self.fileno)
            if columns > 0 and rows > 0:
                return columns, rows
        size: tuple[int, int] = super()._get_terminal_size()
        return size

    def start_application_mode(self) -> None:
        self._is_drawn = self._probe is not None and self._probe.taken_over
        super().start_application_mode()  # type: ignore[no-untyped-call]
        self._is_drawn = False
        if self._probe is not None and self._writer_thread is not None:
            self._probe.taken_over = True
            if self._probe.attributes is not None:
                self.attrs_before = self._probe.attributes
        if self.raw:
            self._report_keys_plainly()  # it is a start after a stop: Textual has pushed its flags

    def stop_application_mode(self) -> None:
        if self._mouse_pixels:
            self.write(_NO_MOUSE_PIXELS)
        super().stop_application_mode()
        if self._probe is not None:
            self._probe.taken_over = False

    # Textual stops and goes on within the handlers of the signals. What these interrupt may hold
    # the lock of what is to be written, which both want: so they wait until the loop calls them.

    def _sigtstp_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(super()._sigtstp_application)

    def _sigcont_application(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._go_on)

    def _go_on(self) -> None:
        if self._auto_restart and not self._must_signal_resume:
            # After a SIGSTOP the shell has the terminal as it likes, and was given back nothing.
            self.suspend_application_mode()
            self._must_signal_resume = True
        super()._sigcont_application()

    def write(self, data: str) -> None:
        # Some terminals would forget where the cursor was before the first time.
        if not (self._is_drawn and data == _ALTERNATE_SCREEN):
            super().write(slim(data))

    @property
    def mouse(self) -> bool:
        """Whether the mouse is the app's; else the terminal has it, to select text."""
        return self._mouse

    @mouse.setter
    def mouse(self, mouse: bool) -> None:
        if mouse != self._mouse:
            self._mouse = True  # Textual writes nothing without
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
                self._report_keys_plainly()
            elif self._writer_thread is not None and not constants.DISABLE_KITTY_KEY:
                self.write(_KITTY_PUSH)

    def _report_keys_plainly(self) -> None:
        """With the protocol on, a terminal reports keys as no guest expects them."""
        if self._writer_thread is not None and not constants.DISABLE_KITTY_KEY:
            self.write(_KITTY_POP)

    @property
    def prefix(self) -> bytes:
        """The key in front of commands to the panes, as the terminal sends it."""
        return self._splitter.prefix

    @prefix.setter
    def prefix(self, prefix: bytes) -> None:
        self._splitter.prefix = prefix

    def replay(self, data: bytes) -> None:
        """Hand out keys to the app that were meant for a pane."""
        parser = XTermParser(self._debug)
        for message in parser.feed(data.decode("utf-8", "replace")):
            self.process_message(message)

    def run_input_thread(self) -> None:
        """Wait for input and hand it out, until the driver ends."""
        parser = XTermParser(self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode

        def hand_out(pieces: list[Piece]) -> None:
            for piece in pieces:
                if piece.for_pane:
                    self.send_message(RawInput(piece.data))
                    continue
                if piece.is_command:
                    self.send_message(CommandTyped())
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
                        break  # the terminal is gone; SIGHUP ends us
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
        before = self._replies.abilities
        keys = self._replies.feed(data)
        if self._replies.abilities != before:
            self.send_message(TerminalAnswered(self._replies.abilities))
        return keys
