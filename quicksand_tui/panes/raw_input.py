"""What a terminal sends, parted: keys for the guest byte for byte, the rest for the app.

Key events lose what they came from: Alt+b arrives as Ctrl+Left, Ctrl+H as Backspace. So while a
pane has the focus its keys never become events. The mouse, pasted text, answers of the terminal,
and what follows the prefix key are the app's all the same.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from quicksand_tui.keymap import DEFAULT_PREFIX

PREFIX = DEFAULT_PREFIX.data

ESCAPE_WAIT_S = 0.03
"""An ESC that nothing follows for so long is the key; terminals send sequences in one piece, which
a network may cut."""

SEQUENCE_MAX = 4096
"""Bytes of an unfinished sequence; more is none."""

PASTE_MAX = 16 * 1024 * 1024

_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"

_CSI = re.compile(rb"\x1b\[[0-?]*[ -/]*([@-~])")
_STRING = re.compile(rb"\x1b[]P_^X].*?(?:\x07|\x1b\\)", re.DOTALL)
"""OSC, DCS and their like: keys send none."""

_CUT = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[]P_^X].*|O)?\Z", re.DOTALL)
"""The beginning of a sequence, up to the end of what there is."""

_ANSWERS = re.compile(
    rb"\x1b\[(?:<[\d;]*[Mm]"  # the mouse (SGR)
    rb"|[IO]"  # focus
    rb"|[?>=][\d;]*c"  # device attributes
    rb"|\??[\d;]*\$y"  # modes
    rb"|[\d;]*[tn]"  # sizes, status
    rb"|\?[\d;]*[un]"  # keyboard protocol, status
    rb"|[\d;:]*u)"  # a key of the keyboard protocol
)
"""What the terminal tells the app (xterm's ctlseqs), not what a key sends."""


class Piece(NamedTuple):
    data: bytes
    for_pane: bool
    is_command: bool = False
    """The key behind the prefix."""


class InputSplitter:
    """Parts a stream of input. ``raw`` says whether a pane has the focus; it and ``prefix`` may be
    set at any time, by another thread too."""

    def __init__(
        self, *, prefix: bytes = PREFIX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.raw = False
        self.prefix = prefix
        self._clock = clock
        self._rest = b""
        """The beginning of a sequence."""
        self._since = 0.0
        self._after_prefix = False

    def feed(self, data: bytes) -> list[Piece]:
        """What ``data`` is made of, in order; neighbours of one kind are one piece."""
        data, self._rest = self._rest + data, b""
        return _joined(self._pieces(data))

    def tick(self) -> list[Piece]:
        """To be called when nothing has come for a while."""
        if not self._rest or self._clock() - self._since < ESCAPE_WAIT_S:
            return []
        rest, self._rest = self._rest, b""
        if rest.startswith(_PASTE):
            self._rest = rest  # a paste has its end
            return []
        return [self._key(rest)] if self.raw else [Piece(rest, for_pane=False)]

    @property
    def waits(self) -> bool:
        """Whether there is the beginning of a sequence, so that `tick` is to be called."""
        return bool(self._rest)

    def _pieces(self, data: bytes) -> Iterator[Piece]:
        at = 0
        while at < len(data):
            if not self.raw and not self._after_prefix:
                yield Piece(data[at:], for_pane=False)
                return
            token = self._token(data, at)
            if token is None:
                self._rest, self._since = data[at:], self._clock()
                return
            at += len(token)
            yield self._sort(token)

    def _token(self, data: bytes, at: int) -> bytes | None:
        """One key, sequence or run of text; None if it is not whole yet."""
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
        # ESC before a key: Alt. Before another sequence, or the prefix, it is a key of its own.
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
        if token == self.prefix:
            self._after_prefix = True
            return Piece(token, for_pane=False)
        return Piece(token, for_pane=True)


def _paste(data: bytes, at: int) -> bytes | None:
    end = data.find(_PASTE_END, at)
    if end >= 0:
        return data[at : end + len(_PASTE_END)]
    return None if len(data) - at < PASTE_MAX else data[at:]


def _character(data: bytes, at: int) -> bytes | None:
    """One character of UTF-8, or a byte that is none; None if it is not whole yet."""
    lead = data[at] if at < len(data) else 0
    length = 1 if lead < 0xC0 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    found = data[at : at + length]
    return found if len(found) == length else None


def _joined(pieces: Iterator[Piece]) -> list[Piece]:
    """The prefix and what follows it are pieces of their own: each is one key for the app."""
    found: list[Piece] = []
    for piece in pieces:
        if found and piece.for_pane and found[-1].for_pane:
            found[-1] = Piece(found[-1].data + piece.data, for_pane=True)
        else:
            found.append(piece)
    return found
