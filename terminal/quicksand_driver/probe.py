"""Asks the terminal for its abilities while the app is loading, so that nobody has to wait."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING, Any

from quicksand_driver.terminal_queries import (
    CELL_MAX,
    UNKNOWN,
    ReplyReader,
    TerminalAbilities,
    cache_key,
    over_ssh,
    questions,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

    from quicksand_driver.terminal_queries import Cache


ANSWER_LOCAL_S, ANSWER_SSH_S = 0.5, 2.0
"""Seconds to expect answers; later ones still count."""

FIRST_PAINT_WAIT_S = 0.15
"""Seconds after the questions for which the first paint waits in an unknown terminal; most of them
pass while the app loads."""

KNOWN_MAX = 32
"""The most terminals whose abilities are kept."""

POINTER_RESET = "\x1b]22;\x1b\\"
"""Gives the mouse pointer its usual shape (xterm's ctlseqs, OSC 22); Textual changes it."""

RESET = (
    "\x1b[?2004l\x1b[?7h\x1b[?2048l"  # bracketed paste, line wrap, in-band resize reports
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # the mouse
    "\x1b[?2026l\x1b[<u\x1b[?1049l\x1b[?25h\x1b[?1004l\x1b[m" + POINTER_RESET
)
"""Resets all that Textual or the app may have set (xterm's ctlseqs); the keyboard protocol before
the alternate screen, which has its own."""


class Probe:
    """Owns the terminal from the first question until it is restored. Used with ``with``.

    Keys typed while the app is loading are not echoed, and kept for the app. SIGTERM and SIGHUP
    raise SystemExit with a shell's exit status, so that everything is restored.
    """

    def __init__(
        self, environ: Mapping[str, str], cache: Cache, *, fd_in: int = 0, fd_out: int = 2
    ) -> None:
        """The defaults are Textual's: it reads standard input and writes standard error."""
        self._in = fd_in
        self._out = fd_out
        self._cache = cache
        self._key = cache_key(environ, fd_in)
        self._patience_s = ANSWER_SSH_S if over_ssh(environ) else ANSWER_LOCAL_S
        self._questions = questions(environ) if os.isatty(fd_out) else b""
        self._asked = 0.0
        self.reader = ReplyReader(expects=bool(self._questions))
        self.known = UNKNOWN
        """This terminal's answers of the last run."""
        self.attributes: list[Any] | None = None
        """The terminal's original modes; None if there is no terminal."""
        self._typed = bytearray()
        self._handlers: dict[int, Any] = {}
        self.taken_over = False
        """The alternate screen is shown, with the outline or the app, whose driver updates this."""

    @property
    def abilities(self) -> TerminalAbilities:
        """The terminal's answers, or those of the last run."""
        return self.reader.abilities if self.reader.abilities != UNKNOWN else self.known

    @property
    def late(self) -> bool:
        """Whether answers can no longer be expected."""
        return time.monotonic() - self._asked > self._patience_s

    def __enter__(self) -> Probe:
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, _end)
        # A stop would leave the shell with a changed terminal; the app handles it later.
        self._handlers[signal.SIGTSTP] = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
        try:
            with contextlib.suppress(termios.error):
                self.attributes = termios.tcgetattr(self._in)
                self._silence()
            if self.attributes is not None and self._questions:
                _write(self._out, self._questions)
            self._asked = time.monotonic()
            self.known = self._recall()
        except BaseException:  # most likely a signal
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Restores the terminal, whatever has happened."""
        try:
            if self._questions and not self.late:
                # Otherwise the shell would get late answers as input.
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
        """Writes ``text``, which must open the alternate screen, if there is a terminal; ignores
        ""."""
        if text and self.attributes is not None and os.isatty(self._out):
            self.taken_over = True
            _write(self._out, text.encode())

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; zeros if unknown."""
        try:
            columns, rows = os.get_terminal_size(self._out)
        except OSError:
            return 0, 0
        return columns, rows

    def _silence(self) -> None:
        """Sets the modes that Textual will set, but leaves the keys that send signals."""
        assert self.attributes is not None
        modes = [*self.attributes[:6], [*self.attributes[6]]]
        modes[3] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        modes[0] &= ~(termios.IXON | termios.IXOFF | termios.ICRNL | termios.INLCR | termios.IGNCR)
        modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._in, termios.TCSANOW, modes)

    def gather(self) -> TerminalAbilities:
        """Reads the answers that have come; waits a moment if the terminal is unknown."""
        if self.attributes is not None and self._questions:
            wait = FIRST_PAINT_WAIT_S if self.known == UNKNOWN else 0.0
            self._read_until(self._asked + wait)
        return self.abilities

    def wait(self) -> TerminalAbilities:
        """Reads the answers, and waits for them as long as they may be expected."""
        if self.attributes is not None and self._questions:
            self._read_until(self._asked + self._patience_s)
        return self.abilities

    def take_typed(self) -> bytes:
        """Removes and returns the keys typed meanwhile."""
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

    # The cache

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


def cell_pixels(descriptor: int) -> tuple[int, int] | None:
    """Returns the width and height in pixels of a cell of the terminal, as the system knows it."""
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
    except OSError:
        return None
    rows, columns, width, height = struct.unpack("HHHH", answer)
    if not (rows and columns and 0 < width // columns <= CELL_MAX >= height // rows > 0):
        return None
    return width // columns, height // rows


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _write(descriptor: int, data: bytes) -> None:
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]
