"""Splits the input of the user's terminal: keys for the guest, unchanged, and the rest for the
program that shows the panes."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

PREFIX = b"\x1d"
"""Ctrl-]."""

ESCAPE_WAIT_S = 0.03
"""Seconds after which an ESC with nothing after it is the key itself. Terminals send sequences in
one piece, but a network may cut them."""

APP_ESCAPE_WAIT_S = 0.1
"""Seconds after which an ESC is a key to the app, which has time: the rest of a cut report of the
mouse would be letters to it."""

ESCAPE = b"\x1b"

_ALONE = re.compile(rb"\x1b(?=[^\[\]\\OPX^_bf\x7f\x1b])")
"""An ESC that is a key itself, though more came with it: it neither begins nor ends a sequence, and
the app has no keys with Alt but those of its inputs (word by word: b, f, backspace)."""

SEQUENCE_MAX = 4096
"""Bytes up to which an unfinished sequence is awaited."""

PASTE_MAX = 16 * 1024 * 1024
"""Bytes up to which the end of a paste is awaited."""

_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"

_CSI = re.compile(rb"\x1b\[[0-?]*[ -/]*([@-~])")
_STRING = re.compile(rb"\x1b[]P_^X].*?(?:\x07|\x1b\\)", re.DOTALL)
"""OSC, DCS and the like, which keys never send."""

_CUT = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[]P_^X].*|O)?\Z", re.DOTALL)
"""The start of a sequence at the end of the data."""

_ANSWERS = re.compile(
    rb"\x1b\[(?:<[\d;]*[Mm]"  # the mouse (SGR)
    rb"|[IO]"  # focus
    rb"|[?>=][\d;]*c"  # device attributes
    rb"|\??[\d;]*\$y"  # modes
    rb"|[\d;]*[tn]"  # sizes, status
    rb"|\?[\d;]*[un])"  # keyboard protocol, status
)
"""Reports of a terminal (xterm's ctlseqs), as opposed to keys."""


class Piece(NamedTuple):
    data: bytes
    for_pane: bool
    is_command: bool = False
    """It is the key after the prefix."""


class InputSplitter:
    """Splits a stream of input. ``raw`` says whether a pane has the focus; it and ``prefix`` may be
    set at any time by another thread."""

    def __init__(
        self, *, prefix: bytes = PREFIX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.raw = False
        self.prefix = prefix
        self._clock = clock
        self._rest = b""
        """The start of an unfinished sequence."""
        self._since = 0.0
        self._after_prefix = False
        self._in_paste = False
        """A paste into the app has not ended."""

    def feed(self, data: bytes) -> list[Piece]:
        """Returns the pieces of ``data`` in order; adjacent keys for the pane are one piece."""
        data, self._rest = self._rest + data, b""
        return _joined(self._pieces(data))

    def tick(self) -> list[Piece]:
        """Returns an unfinished sequence as keys once `ESCAPE_WAIT_S` have passed."""
        wait = ESCAPE_WAIT_S if self.raw else APP_ESCAPE_WAIT_S
        if not self._rest or self._clock() - self._since < wait:
            return []
        rest, self._rest = self._rest, b""
        if rest.startswith(_PASTE):
            self._rest = rest  # a paste always ends with its own sequence
            return []
        return [self._key(rest)] if self.raw else [Piece(rest, for_pane=False)]

    @property
    def waits(self) -> bool:
        """Whether a sequence is unfinished, so that `tick` must be called."""
        return bool(self._rest)

    def _pieces(self, data: bytes) -> Iterator[Piece]:
        at = 0
        while at < len(data):
            if not self.raw and not self._after_prefix:
                yield from self._for_app(data[at:])
                return
            token = self._token(data, at)
            if token is None:
                self._rest, self._since = data[at:], self._clock()
                return
            at += len(token)
            yield self._sort(token)

    def _for_app(self, data: bytes) -> Iterator[Piece]:
        """Yields the pieces for the app; each ESC that is a key is a piece of its own."""
        if self._in_paste or _PASTE in data:
            self._in_paste = data.rfind(_PASTE_END) <= data.rfind(_PASTE)
            yield Piece(data, for_pane=False)
            return
        at = 0
        for match in _ALONE.finditer(data):
            if match.start() > at:
                yield Piece(data[at : match.start()], for_pane=False)
            yield Piece(ESCAPE, for_pane=False)
            at = match.end()
        if data.endswith(ESCAPE):
            self._rest, self._since = ESCAPE, self._clock()
        if rest := data[at:].removesuffix(ESCAPE):
            yield Piece(rest, for_pane=False)

    def _token(self, data: bytes, at: int) -> bytes | None:
        """Returns one key, sequence or run of text; None if it is incomplete."""
        if data[at] == 0x1B:
            return self._sequence(data, at)
        end = at + 1
        if self._after_prefix:
            return _character(data, at)
        if data[at : at + 1] != self.prefix:
            stops = (data.find(b"\x1b", at), data.find(self.prefix, at))
            end = min((stop for stop in stops if stop >= 0), default=len(data))
        return data[at:end]

    def _sequence(self, data: bytes, at: int) -> bytes | None:
        if data.startswith(_PASTE, at):
            return _paste(data, at)
        for pattern in (_CSI, _STRING):
            if (match := pattern.match(data, at)) is not None:
                return match[0]
        if len(data) - at < SEQUENCE_MAX and _CUT.match(data, at):
            return None
        if data[at + 1 : at + 2] in (b"O", b"["):
            return data[at : at + 3]
        # ESC before a character is Alt; before another sequence or the prefix, it is a key itself.
        if data[at + 1 : at + 2] in (b"\x1b", self.prefix):
            return data[at : at + 1]
        following = _character(data, at + 1)
        return None if following is None else data[at : at + 1] + following

    def _sort(self, token: bytes) -> Piece:
        if token.startswith((_PASTE, b"\x1b]", b"\x1bP", b"\x1b_", b"\x1b^", b"\x1bX")):
            return Piece(token, for_pane=False)
        if _ANSWERS.fullmatch(token):
            return Piece(token, for_pane=False)
        return self._key(token)

    def _key(self, token: bytes) -> Piece:
        if self._after_prefix:
            self._after_prefix = False
            return Piece(token, for_pane=False, is_command=True)
        if token == self.prefix or (token[-1:] == b"u" and _told(self.prefix).fullmatch(token)):
            self._after_prefix = True
            return Piece(self.prefix, for_pane=False)
        return Piece(token, for_pane=True)


@functools.cache
def _told(prefix: bytes) -> re.Pattern[bytes]:
    """Returns a pattern for the prefix, a key with Ctrl, as kitty's keyboard protocol tells it
    (quicksand_vt/keyboard.py): Caps Lock (64) and Num Lock (128) are told as well."""
    code = prefix[0] | (0x60 if prefix[0] < 0x1B else 0x40)
    return re.compile(rb"\x1b\[%d(?::\d*)*;(?:5|69|133|197)(?::[12])?u" % code)


def _paste(data: bytes, at: int) -> bytes | None:
    end = data.find(_PASTE_END, at)
    if end >= 0:
        return data[at : end + len(_PASTE_END)]
    return None if len(data) - at < PASTE_MAX else data[at:]


def _character(data: bytes, at: int) -> bytes | None:
    """Returns one character of UTF-8, or an invalid byte; None if it is incomplete."""
    lead = data[at] if at < len(data) else 0
    length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    character = data[at : at + length]
    return character if len(character) == length else None


def _joined(pieces: Iterator[Piece]) -> list[Piece]:
    """Joins adjacent pieces for the pane; each piece for the app is one key."""
    done: list[Piece] = []
    for piece in pieces:
        if done and piece.for_pane and done[-1].for_pane:
            done[-1] = Piece(done[-1].data + piece.data, for_pane=True)
        else:
            done.append(piece)
    return done
