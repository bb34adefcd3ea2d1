"""Asking the terminal while the app is loaded, so that nobody waits for the answers."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import termios
import time
from collections.abc import Mapping
from types import FrameType
from typing import Any

from quicksand_tui.probe import (
    ANSWER_LOCAL_S,
    ANSWER_SSH_S,
    UNKNOWN,
    ReplyReader,
    TerminalAbilities,
    over_ssh,
    questions,
)
from quicksand_tui.state_files import StateFile, state_dir

FIRST_PAINT_WAIT_S = 0.15
"""Seconds after the questions for which the first paint of an unknown terminal waits; loading the
app takes most of them."""

KNOWN_MAX = 32
"""Terminals whose abilities are kept."""

RESET = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l"  # pastes, line wrap, sizes in the band
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # the mouse
    "\x1b[?2026l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l\x1b[m"
)
"""All that Textual or the app may have switched on (xterm's ctlseqs), the keyboard protocol before
the alternate screen, which has its own."""


class Probe:
    """The terminal from the first question until it is given back. Use it with ``with``.

    While the app is loaded what is typed is not echoed, and kept for it. SIGTERM and SIGHUP end the
    program by an exception, so that everything is put back, with a shell's exit status.
    """

    def __init__(
        self, environ: Mapping[str, str], cache: StateFile, *, fd_in: int = 0, fd_out: int = 2
    ) -> None:
        """Textual reads from standard input and writes to standard error."""
        self._in = fd_in
        self._out = fd_out
        self._cache = cache
        self._key = cache_key(environ, fd_in)
        self._patience_s = ANSWER_SSH_S if over_ssh(environ) else ANSWER_LOCAL_S
        self._questions = questions(environ) if os.isatty(fd_out) else b""
        self._asked = 0.0
        self.reader = ReplyReader(expects=bool(self._questions))
        self.known = UNKNOWN
        """What this terminal answered the last time."""
        self.attributes: list[Any] | None = None
        """The terminal's modes as they were before."""
        self._typed = bytearray()
        self._handlers: dict[int, Any] = {}
        self.taken_over = False
        """Something is on the alternate screen: what was drawn while the app was loaded, or the app
        itself, whose driver keeps this up to date."""

    @property
    def abilities(self) -> TerminalAbilities:
        """What the terminal says, or what it said the last time."""
        return self.reader.abilities if self.reader.abilities != UNKNOWN else self.known

    @property
    def late(self) -> bool:
        """Whether it is so long ago that answers are not to be expected any more."""
        return time.monotonic() - self._asked > self._patience_s

    def __enter__(self) -> Probe:
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _end)
        # A stop would leave the shell with the terminal as it is now; the app knows what to do.
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        try:
            with contextlib.suppress(termios.error):
                self.attributes = termios.tcgetattr(self._in)
                self._silence()
            if self.attributes is not None and self._questions:
                _write(self._out, self._questions)
            self._asked = time.monotonic()
            self.known = self._recall()
        except BaseException:  # a signal, most likely
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Give the terminal back as it was, whatever has happened."""
        try:
            if self._questions and not self.late:
                # Else the shell would get what still comes.
                self._read_until(self._asked + self._patience_s)
        finally:
            if self.taken_over:
                _write(self._out, RESET.encode())
            if self.attributes is not None:
                with contextlib.suppress(termios.error):
                    termios.tcsetattr(self._in, termios.TCSANOW, self.attributes)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
        self._remember()

    def draw(self, text: str) -> None:
        """Show something while the app is loaded, if there is a terminal to show it on. ``text``
        goes to the alternate screen; "" is nothing to show."""
        if text and self.attributes is not None and os.isatty(self._out):
            self.taken_over = True
            _write(self._out, text.encode())

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; zeros where they are not known."""
        try:
            columns, rows = os.get_terminal_size(self._out)
        except OSError:
            return 0, 0
        return columns, rows

    def _silence(self) -> None:
        """As Textual will have it, but for the keys that send signals."""
        assert self.attributes is not None
        modes = [*self.attributes[:6], [*self.attributes[6]]]
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        modes[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._in, termios.TCSANOW, modes)

    def gather(self) -> TerminalAbilities:
        """Take the answers that are there; wait for them a moment if nothing is known."""
        if self.attributes is not None and self._questions:
            wait = FIRST_PAINT_WAIT_S if self.known == UNKNOWN else 0.0
            self._read_until(self._asked + wait)
        return self.abilities

    def take_typed(self) -> bytes:
        """What was typed meanwhile, once."""
        typed, self._typed = bytes(self._typed), bytearray()
        return typed

    def _read_until(self, deadline: float) -> None:
        with contextlib.suppress(OSError):
            while not self.reader.answered:
                left = max(0.0, deadline - time.monotonic())
                if not select.select([self._in], [], [], left)[0]:
                    return
                data = os.read(self._in, 4096)
                if not data:
                    return
                self._typed += self.reader.feed(data)

    # What is known from the last time

    def _recall(self) -> TerminalAbilities:
        if not self._questions:
            return UNKNOWN
        entry = self._cache.read().get(self._key)
        try:
            return TerminalAbilities.from_json(entry)
        except ValueError:
            return UNKNOWN

    def _remember(self) -> None:
        if not self.reader.answered or self.reader.abilities == self.known:
            return
        known = self._cache.read()
        known.pop(self._key, None)
        kept = dict(list(known.items())[-KNOWN_MAX + 1 :])
        kept[self._key] = self.reader.abilities.to_json()
        with contextlib.suppress(OSError):
            self._cache.write(kept)


def terminals_file() -> StateFile:
    return StateFile(state_dir() / "terminals.json")


def known_terminal(environ: Mapping[str, str], fd: int = 0) -> TerminalAbilities | None:
    """What this terminal answered the last time; None if it was never asked."""
    try:
        return TerminalAbilities.from_json(terminals_file().read().get(cache_key(environ, fd)))
    except ValueError:
        return None


def cache_key(environ: Mapping[str, str], fd: int) -> str:
    """What a terminal is known by."""
    try:
        name = os.ttyname(fd)
    except OSError:
        name = ""
    words = [environ.get(word, "") for word in ("TERM_PROGRAM", "TERM_PROGRAM_VERSION", "TERM")]
    return json.dumps([*words, name])


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]
