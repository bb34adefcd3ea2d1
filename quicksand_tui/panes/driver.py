"""Textual's driver for terminals, with keys for the guest passed by."""

from __future__ import annotations

import os
import selectors
from codecs import getincrementaldecoder

from textual import constants
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

from quicksand_tui.panes.raw_input import ESCAPE_WAIT_S, InputSplitter, Piece

READ_SIZE = 64 * 1024
IDLE_S = 0.1
"""Between two looks whether the app has ended."""

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


class RawDriver(LinuxDriver):
    """While `raw`, keys come as `RawInput` messages to the app instead of key events."""

    def __init__(
        self,
        app: App[object],
        *,
        debug: bool = False,
        mouse: bool = True,
        size: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        self._splitter = InputSplitter()

    @property
    def raw(self) -> bool:
        return self._splitter.raw

    @raw.setter
    def raw(self, raw: bool) -> None:
        if raw != self._splitter.raw:
            self._splitter.raw = raw
            # With the protocol on, a terminal reports keys as no guest expects them.
            if self._writer_thread is not None and not constants.DISABLE_KITTY_KEY:
                self.write(_KITTY_POP if raw else _KITTY_PUSH)

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

        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                wait = ESCAPE_WAIT_S if self._splitter.waits else IDLE_S
                if selector.select(wait):
                    data = os.read(self.fileno, READ_SIZE)
                    if not data:
                        break  # the terminal is gone; SIGHUP ends us
                    hand_out(self._splitter.feed(data))
                hand_out(self._splitter.tick())
                for message in parser.tick():
                    self.process_message(message)
        for _ in parser.feed(""):
            pass
