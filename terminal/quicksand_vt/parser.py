"""Splits bytes, cut anywhere, into text, control characters and sequences.

One regular expression finds everything that is complete within a piece of input. The rest
(sequences that are cut off, very long, or contain control characters) goes through a state machine
after Paul Williams' drawing of DEC's parser (vt100.net/emu/dec_ansi_parser). The state machine
defines the behaviour; the expression only gets there faster.

Input is UTF-8, so C1 control characters are recognised only in their 7-bit form; U+0080 to U+009F
are ignored.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from quicksand_vt.graphics import Reader

SEQUENCE_MAX: Final = 256
"""Characters between CSI and its end. Longer sequences are ignored as a whole."""

STRING_MAX: Final = 1024 * 1024
"""How many characters of an OSC or DCS are kept; a longer one is reported as incomplete."""

STRING_KINDS: Final = "]PX^_k"
"""The characters after ESC for OSC, DCS, SOS, PM, APC, and for GNU screen's title."""

KEPT_KINDS: Final = "]P"
"""The kinds that are kept in any case; the others are skipped."""

_TOKEN: Final = re.compile(
    # Colours, a text and the end of a line are one match, for speed.
    r"\x1b\[([0-9:;]{0,250}(?:m\x1b\[[0-9:;]{0,250})*)m([^\x00-\x1f\x7f-\x9f]*)(\r\n)?"
    r"|([^\x00-\x1f\x7f-\x9f]+)(\r\n)?"
    r"|(\r\n|[\x00-\x1a\x1c-\x1f])"
    r"|\x1b\[([<=>?]?[0-9:;]{0,250})([ -/]{0,4}[@-~])"
    r"|\x1b([ -/]{1,4}[0-~]|[0-OQ-WYZ\\`-jl-~])"
    r"|\x1b\]([^\x07\x18\x1a\x1b]{0,4096})(\x07|\x1b\\)"
    r"|(\x1b)"
)
_COLOURED_LINE, _TEXT, _LINE, _CONTROL, _CSI, _ESCAPE, _OSC = 3, 4, 5, 6, 8, 9, 11
"""The last group of each alternative."""

_SEQUENCE: Final = re.compile(r"([<=>?]?[0-9:;]*)([ -/]{0,4}[@-~])")
_PARAMS: Final = re.compile(r"[ -?]+")
_SIXELS: Final = re.compile(r"([0-9;]{0,32})q")
"""The start of a DCS that draws sixels."""
HEAD_MAX: Final = 40
"""Characters within which a string shows what it is."""

_STRING_END: Final = re.compile(r"[\x07\x18\x1a\x1b]")


class Sink(Protocol):
    """Receives what the parser found."""

    @property
    def controls(self) -> Mapping[str, Callable[[], object]]:
        """The functions for CR LF and for control characters; others are ignored."""

    def write(self, text: str) -> None:
        """Takes text without control characters, never empty."""

    def sgr(self, params: str) -> None:
        """Takes CSI ``params`` m; several sequences come at once, with ``m CSI`` between them."""

    def csi(self, params: str, final: str) -> None:
        """Takes any other control sequence: an optional private prefix (such as ``?``) with the
        parameters, and the intermediate characters with the final one."""

    def escape(self, final: str) -> None:
        """Takes ESC: its intermediate characters with the final one."""

    def string(self, kind: str, data: str, end: str, *, complete: bool) -> None:
        """Takes an OSC (``]``), DCS (``P``) or APC (``_``), and its terminator; an incomplete one
        was longer."""


class _State(Enum):
    GROUND = 0
    ESCAPE = 1
    SEQUENCE = 2
    """Inside CSI."""
    STRING = 3
    STRING_ESCAPE = 4
    """After ESC inside a string: a backslash ends the string."""


class Parser:
    """Feeds a `Sink`. Never raises. Between two pieces of input it keeps at most `SEQUENCE_MAX`
    characters of a sequence or `STRING_MAX` of a string."""

    def __init__(self, sink: Sink, sixels: Callable[[str], Reader] | None = None) -> None:
        """``sixels`` makes readers of sixel pictures by their parameters, which take them piece by
        piece. With it, APC strings are kept, too: some are pictures."""
        self._sink = sink
        self.sixels = sixels
        """None from now on skips them."""
        self._kept = KEPT_KINDS if sixels is None else f"{KEPT_KINDS}_"
        self._reader: Reader | None = None
        """Takes the string, which is not kept then."""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.GROUND
        self._held = ""
        """The unfinished sequence after ESC or CSI."""
        self._kind = ""
        """The kind of the string, one of `STRING_KINDS`."""
        self._string = io.StringIO()
        self._length = 0
        """Characters of the string so far, including those not kept."""

    def feed(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        at, end = 0, len(text)
        while at < end:
            at = self._scan(text, at) if self._state is _State.GROUND else self._step(text, at)

    def _scan(self, text: str, at: int) -> int:
        """Handles what is complete; returns where the state machine must take over."""
        sink = self._sink
        write, sgr, controls = sink.write, sink.sgr, sink.controls
        newline = controls["\r\n"]
        for match in _TOKEN.finditer(text, at):
            kind = match.lastindex or 0
            if kind <= _COLOURED_LINE:
                params, written = match.group(1, 2)
                sgr(params)
                if written:
                    write(written)
                if kind == _COLOURED_LINE:
                    newline()
            elif kind <= _LINE:
                write(match[_TEXT])
                if kind == _LINE:
                    newline()
            elif kind == _CONTROL:
                control = controls.get(match[_CONTROL])
                if control is not None:
                    control()
            elif kind == _CSI:
                sink.csi(match[_CSI - 1], match[_CSI])
            elif kind == _OSC:
                sink.string("]", match[_OSC - 1], match[_OSC], complete=True)
            elif kind == _ESCAPE:
                sink.escape(match[_ESCAPE])
            else:
                self._state = _State.ESCAPE
                return match.end()
        return len(text)

    @property
    def unfinished(self) -> bytes:
        """The beginning of the sequence or character in which the input so far ends; a skipped
        string is replaced by the start of an SOS."""
        character = self._decoder.getstate()[0]
        match self._state:
            case _State.GROUND:
                return character
            case _State.ESCAPE:
                sequence = f"\x1b{self._held}"
            case _State.SEQUENCE:
                sequence = f"\x1b[{self._held}"
            case _State.STRING | _State.STRING_ESCAPE:
                is_kept = self._kind in self._kept and self._reader is None
                sequence = f"\x1b{self._kind if is_kept else 'X'}{self._string.getvalue()}"
                sequence += "\x1b" if self._state is _State.STRING_ESCAPE else ""
        return sequence.encode("utf-8", "replace") + character

    # The state machine: a step takes one character, or as much of a string or parameters as follows

    def _step(self, text: str, at: int) -> int:
        if self._state is _State.STRING:
            return self._in_string(text, at)
        if self._state is _State.SEQUENCE and (match := _PARAMS.match(text, at)):
            self._hold(match[0])
            return match.end()
        char = text[at]
        if self._state is _State.STRING_ESCAPE:
            if char == "\\":
                self._end_string("\x1b\\")
                return at + 1
            # Another sequence breaks off the string.
            self._drop_string()
            self._state = _State.ESCAPE
        if char > "\x7f":
            self._leave()
            return at
        if char in "\x18\x1a":
            self._leave()
        elif char == "\x1b":
            self._leave()
            self._state = _State.ESCAPE
        elif char < " ":
            control = self._sink.controls.get(char)
            if control is not None:
                control()
        elif char != "\x7f":
            after = self._after_escape if self._state is _State.ESCAPE else self._after_csi
            after(char)
        return at + 1

    def _leave(self) -> None:
        self._state = _State.GROUND
        self._held = ""

    def _hold(self, chars: str) -> None:
        # One more than the limit, which marks the sequence as too long.
        self._held += chars[: SEQUENCE_MAX + 1 - len(self._held)]

    def _after_escape(self, char: str) -> None:
        if char < "0":
            self._hold(char)
        elif self._held:
            held = self._held
            self._leave()
            if len(held) <= 4:
                self._sink.escape(held + char)
        elif char == "[":
            self._state = _State.SEQUENCE
        elif char in STRING_KINDS:
            self._state, self._kind = _State.STRING, char
        else:
            self._leave()
            self._sink.escape(char)

    def _after_csi(self, char: str) -> None:
        held = self._held + char
        self._leave()
        match = _SEQUENCE.fullmatch(held)
        if match is None or len(held) > SEQUENCE_MAX:
            return
        params, final = match.groups()
        if final == "m" and not params.startswith(("<", "=", ">", "?")):
            self._sink.sgr(params)
        else:
            self._sink.csi(params, final)

    def _in_string(self, text: str, at: int) -> int:
        match = _STRING_END.search(text, at)
        end = match.start() if match else len(text)
        self._take(text[at:end])
        if match is None:
            return end
        if match[0] == "\x1b":
            self._state = _State.STRING_ESCAPE
        elif match[0] != "\x07":
            self._drop_string()
        elif self._kind == "]":
            self._end_string("\x07")
        return end + 1

    def _take(self, text: str) -> None:
        """Takes a piece of a string."""
        if self._reader is not None:
            self._reader.feed(text)
            return
        is_head = self._length < HEAD_MAX
        room = STRING_MAX - self._length if self._kind in self._kept else 0
        if room > 0:
            self._string.write(text[:room])
        self._length += len(text)
        if is_head and self._kind == "P" and self.sixels is not None:
            head = _SIXELS.match(begun := self._string.getvalue())
            if head is not None:
                self._reader = self.sixels(head[1])
                self._reader.feed(begun[head.end() :])

    def _end_string(self, end: str) -> None:
        kind, data, complete = self._kind, self._string.getvalue(), self._length <= STRING_MAX
        reader = self._reader
        self._drop_string()
        if reader is not None:
            reader.end()
        elif kind in self._kept:
            self._sink.string(kind, data, end, complete=complete)

    def _drop_string(self) -> None:
        self._leave()
        self._reader = None
        self._string = io.StringIO()
        self._length = 0
