"""Text that somebody else wrote, made harmless for a terminal.

Guests are hostile: a file name, a process's title or a console line may hold escape sequences that
retitle, recolour, answer back or hide text, and bidirectional controls that reorder it.
"""

from __future__ import annotations

import codecs
import unicodedata
from enum import Enum, auto

COMBINING_MAX = 4
"""Marks on one character: the longest in use (Vietnamese, pointed Hebrew) have three or four, more
only serve to paint over the lines above."""

SURROGATE_BYTES = range(0xDC80, 0xDD00)
"""How `os.fsdecode` shows bytes that are not UTF-8."""


def clean(text: object, *, keep: str = "") -> str:
    r"""``text`` with everything that does not simply print written as ``\x1b``, ``\u202e`` and so
    on, except the characters in ``keep``.

    >>> clean("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    parts = []
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if char in keep or (char.isprintable() and marks <= COMBINING_MAX):
            parts.append(char)
        else:
            parts.append(_escape(char))
    return "".join(parts)


def clean_lines(text: object) -> str:
    """As `clean`, but line breaks and tabs stay."""
    return clean(str(text).replace("\r\n", "\n"), keep="\n\t")


def _escape(char: str) -> str:
    code = ord(char)
    if code in SURROGATE_BYTES:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _State(Enum):
    """Where `Plain` is in an escape sequence (ECMA-48, as terminals read it)."""

    TEXT = auto()
    ESCAPE = auto()
    """After ESC, until a final byte."""
    CONTROL = auto()
    """In a control sequence, until a final byte."""
    STRING = auto()
    """In a string (title, device control), until BEL or ST."""
    STRING_ESCAPE = auto()
    """After ESC in a string."""


class Plain:
    """Strips a byte stream, piece by piece, to printable text, newlines and tabs."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.TEXT

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """What is left of ``data``. Sequences may be split between calls."""
        text = self._decoder.decode(data, final)
        return "".join(self._line(line) for line in text.splitlines(keepends=True))

    def _line(self, line: str) -> str:
        if self._state is _State.TEXT and line.removesuffix("\n").isprintable():
            return line
        return "".join(c for c in line if self._prints(c))

    def _prints(self, char: str) -> bool:
        match self._state:
            case _State.TEXT:
                return self._text(char)
            case _State.ESCAPE:
                self._escape(char)
            case _State.CONTROL:
                self._control(char)
            case _State.STRING:
                self._string(char)
            case _State.STRING_ESCAPE:
                # Whatever follows, the string has ended: ST is ESC and a backslash.
                self._state = _State.TEXT
                if char != "\\":
                    self._escape(char)
        return char == "\n" and self._state is _State.TEXT

    def _text(self, char: str) -> bool:
        if char == "\x1b":
            self._state = _State.ESCAPE
        elif char == "\x9b":
            self._state = _State.CONTROL
        elif char in "\x90\x98\x9d\x9e\x9f":
            self._state = _State.STRING
        return char.isprintable() or char in "\n\t"

    def _escape(self, char: str) -> None:
        if char == "[":
            self._state = _State.CONTROL
        elif char in "PX]^_":
            self._state = _State.STRING
        elif not "\x20" <= char <= "\x2f":  # intermediate bytes: more to come
            self._state = _State.ESCAPE if char == "\x1b" else _State.TEXT

    def _control(self, char: str) -> None:
        if char == "\x1b":
            self._state = _State.ESCAPE
        elif not "\x20" <= char <= "\x3f":
            self._state = _State.TEXT

    def _string(self, char: str) -> None:
        # A newline ends it too: an unfinished string must not swallow the rest of the log.
        if char in "\x07\x9c\n\x18\x1a":
            self._state = _State.TEXT
        elif char == "\x1b":
            self._state = _State.STRING_ESCAPE
