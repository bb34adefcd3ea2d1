"""The user's input in the terminal, as keys and a mouse for a guest's screen.

Reads keys as xterm sends them, with and without flag 1 of kitty's keyboard protocol, and the mouse
in SGR's form, in cells (mode 1006) or pixels (mode 1016).
"""

from __future__ import annotations

import re
import time
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

SHIFT, CONTROL, ALT, SUPER = 0xFFE1, 0xFFE3, 0xFFE9, 0xFFEB

KEYS = {
    "backspace": 0xFF08, "tab": 0xFF09, "enter": 0xFF0D, "escape": 0xFF1B,
    "home": 0xFF50, "left": 0xFF51, "up": 0xFF52, "right": 0xFF53, "down": 0xFF54,
    "pageup": 0xFF55, "pagedown": 0xFF56, "end": 0xFF57, "insert": 0xFF63, "delete": 0xFFFF,
    **{f"f{number}": 0xFFBD + number for number in range(1, 13)},
}  # fmt: skip

SHIFTED = frozenset('ABCDEFGHIJKLMNOPQRSTUVWXYZ~!@#$%^&*()_+{}|:"<>?')
"""Characters that need shift on QEMU's keyboard, the US layout: it presses none by itself."""


class Chord(NamedTuple):
    """A key with modifiers."""

    key: str
    """A character, or a name of `KEYS`."""
    shift: bool = False
    alt: bool = False
    control: bool = False
    super: bool = False


class Stroke(NamedTuple):
    """A key that goes down or up."""

    keysym: int
    down: bool


def keysym_of(key: str) -> int:
    """Returns the number of a character or of a name in `KEYS`."""
    if key in KEYS:
        return KEYS[key]
    number = ord(key)
    if 0x20 <= number < 0x7F or 0xA0 <= number < 0x100:
        return number
    return 0x01000000 | number


def strokes(chord: Chord) -> Iterator[Stroke]:
    """Yields the strokes that press and release a chord, modifiers around."""
    held = []
    if chord.shift or chord.key in SHIFTED:
        held.append(SHIFT)
    held += [
        keysym
        for wanted, keysym in ((chord.control, CONTROL), (chord.alt, ALT), (chord.super, SUPER))
        if wanted
    ]
    pressed = [*held, keysym_of(chord.key)]
    yield from (Stroke(keysym, down=True) for keysym in pressed)
    yield from (Stroke(keysym, down=False) for keysym in reversed(pressed))


ESCAPE_WAIT_S = 0.03
"""Seconds after which an ESC with nothing after it is the key itself."""

PASTE_MAX = 64 * 1024
"""Bytes of a paste that are typed into the guest; the rest is dropped."""

SEQUENCE_MAX = 256

_CSI = re.compile(rb"\x1b\[([<=>?]?)([\d;:]*)([ -/]*)([@-~])")
_SS3 = re.compile(rb"\x1bO([@-~])")
_CUT = re.compile(rb"\x1b(?:\[[<=>?]?[\d;:]*[ -/]*|O)?\Z")
_PASTE, _PASTE_END = b"\x1b[200~", b"\x1b[201~"

_FINAL = {
    "A": "up", "B": "down", "C": "right", "D": "left", "F": "end", "H": "home",
    "P": "f1", "Q": "f2", "R": "f3", "S": "f4", "Z": "tab",
}  # fmt: skip
_TILDE = {
    1: "home", 2: "insert", 3: "delete", 4: "end", 5: "pageup", 6: "pagedown", 7: "home",
    8: "end", 11: "f1", 12: "f2", 13: "f3", 14: "f4", 15: "f5", 17: "f6", 18: "f7", 19: "f8",
    20: "f9", 21: "f10", 23: "f11", 24: "f12",
}  # fmt: skip
_CODES = {9: "tab", 13: "enter", 27: "escape", 127: "backspace"}
"""Codes of the keyboard protocol that are no characters."""

_CONTROLS = {"\x00": " ", "\x1c": "\\", "\x1d": "]", "\x1e": "^", "\x1f": "_"}

_WHEEL = {64: 3, 65: 4, 66: 5, 67: 6}
"""VNC's bits for the wheel, by SGR's button: up, down, left, right."""


class Command(NamedTuple):
    """The key after the prefix."""

    key: str


class Pointer(NamedTuple):
    """The place of the mouse in the terminal, and its buttons."""

    column: float
    """The column in cells from the left, counted from 0."""
    row: float
    buttons: int
    """Bits of VNC: left, middle, right, wheel up, down, left, right."""


class Pasted(NamedTuple):
    text: str


class Focus(NamedTuple):
    """The terminal's window has got the focus, or lost it."""

    here: bool


Event = Chord | Command | Pointer | Pasted | Focus


class ScreenInput:
    """Turns a terminal's input into events."""

    def __init__(
        self,
        prefix: Chord,
        *,
        mouse_cell: tuple[int, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``mouse_cell`` is the size of a cell if the mouse is told in pixels."""
        self._prefix = prefix
        self.mouse_cell = mouse_cell
        self._clock = clock
        self._rest = b""
        self._since = 0.0
        self._after_prefix = False
        self._paste: bytearray | None = None
        self._buttons = 0
        self._decode = getincrementaldecoder("utf-8")("replace").decode

    @property
    def waits(self) -> bool:
        """Whether a sequence is unfinished, so that `tick` must be called."""
        return bool(self._rest)

    @property
    def after_prefix(self) -> bool:
        """Whether the next key is a command."""
        return self._after_prefix

    def feed(self, data: bytes) -> list[Event]:
        """Returns the events in ``data``, in order."""
        data, self._rest = self._rest + data, b""
        return list(self._sorted(self._events(data)))

    def tick(self) -> list[Event]:
        """Returns an unfinished sequence as keys once `ESCAPE_WAIT_S` have passed."""
        if not self._rest or self._paste is not None:
            return []  # a paste always ends with its own sequence
        if self._clock() - self._since < ESCAPE_WAIT_S:
            return []
        rest, self._rest = self._rest, b""
        if rest == b"\x1b":
            return list(self._sorted(iter([Chord("escape")])))
        return list(self._sorted(iter([Chord(chr(rest[1]), alt=True)])))

    def _sorted(self, found: Iterator[Event]) -> Iterator[Event]:
        """Yields events; chords after the prefix become commands."""
        for event in found:
            if not isinstance(event, Chord):
                yield event
            elif self._after_prefix:
                self._after_prefix = False
                yield event if event == self._prefix else Command(event.key)
            elif event == self._prefix:
                self._after_prefix = True
            else:
                yield event

    def _events(self, data: bytes) -> Iterator[Event]:
        at = 0
        while at < len(data):
            start = at
            if self._paste is not None:
                at, event = self._pasting(data, at)
                if event is not None:
                    yield event
            elif data[at] != 0x1B:
                escape = data.find(b"\x1b", at)
                at = len(data) if escape < 0 else escape
                yield from self._text(data[start:at])
            else:
                at, found = self._escape(data, at)
                yield from found
            if at == start:  # the rest is unfinished
                self._rest, self._since = data[at:], self._clock()
                return

    def _escape(self, data: bytes, at: int) -> tuple[int, Iterable[Event]]:
        """Returns the position after an ESC sequence, and its events; ``at`` if unfinished."""
        if (match := _CSI.match(data, at)) is not None:
            if match[0] != _PASTE:
                return match.end(), self._sequence(match)
            self._paste = bytearray()
            return match.end(), ()
        if (short := _SS3.match(data, at)) is not None:
            name = _FINAL.get(short[1].decode())
            return short.end(), () if name is None else (Chord(name),)
        if _CUT.match(data, at) and len(data) - at <= SEQUENCE_MAX:
            return at, ()
        if at + 1 < len(data) and data[at + 1] != 0x1B:
            chords = self._text(data[at + 1 : at + 2])
            return at + 2, (chord._replace(alt=True) for chord in chords)
        return at + 1, (Chord("escape"),)

    def _pasting(self, data: bytes, at: int) -> tuple[int, Pasted | None]:
        """Returns the position to go on from, and the paste if it has ended."""
        assert self._paste is not None
        end = data.find(_PASTE_END, at)
        if end < 0:
            kept = max(at, len(data) - len(_PASTE_END) + 1)
            self._keep(data[at:kept])
            return kept, None
        self._keep(data[at:end])
        text = self._paste.decode("utf-8", "replace")
        self._paste = None
        return end + len(_PASTE_END), Pasted(text)

    def _keep(self, data: bytes) -> None:
        assert self._paste is not None
        self._paste += data[: max(0, PASTE_MAX - len(self._paste))]

    def _text(self, data: bytes) -> Iterator[Chord]:
        for character in self._decode(data):
            if character in "\r\n":
                yield Chord("enter")
            elif character == "\t":
                yield Chord("tab")
            elif character in "\x7f\x08":
                yield Chord("backspace")
            elif character in _CONTROLS:
                yield Chord(_CONTROLS[character], control=True)
            elif character < " ":
                yield Chord(chr(ord(character) + 0x60), control=True)
            else:
                yield Chord(character)

    def _sequence(self, match: re.Match[bytes]) -> Iterator[Event]:
        mark, final = match[1].decode(), match[4].decode()
        groups = [group.split(":") for group in match[2].decode().split(";")]
        numbers = [int(group[0][:7]) if group[0] else 0 for group in groups]
        if mark == "<" and final in "Mm" and len(numbers) == 3:
            yield from self._mouse(numbers[0], numbers[1], numbers[2], up=final == "m")
        elif mark or match[3]:
            return
        elif final in "IO" and numbers == [0]:
            yield Focus(here=final == "I")
        elif (key := _key_of(final, numbers)) is not None:
            modifiers = max(0, numbers[1] - 1) if len(numbers) > 1 else 0
            yield Chord(
                key,
                shift=bool(modifiers & 1) or final == "Z",
                alt=bool(modifiers & 2),
                control=bool(modifiers & 4),
                super=bool(modifiers & 8),
            )

    def _mouse(self, code: int, x: int, y: int, *, up: bool) -> Iterator[Pointer]:
        wide, high = self.mouse_cell or (1, 1)
        inside = 0.5 if self.mouse_cell is None else 0.0
        column, row = max(0.0, (x - 1 + inside) / wide), max(0.0, (y - 1 + inside) / high)
        moved, button = code & 32, code & 0b11000011
        if button in _WHEEL:
            if not up:
                yield Pointer(column, row, self._buttons | 1 << _WHEEL[button])
                yield Pointer(column, row, self._buttons)
            return
        if not moved and button < 3:
            bit = 1 << button
            self._buttons = self._buttons & ~bit if up else self._buttons | bit
        yield Pointer(column, row, self._buttons)


def _key_of(final: str, numbers: list[int]) -> str | None:
    if final == "~":
        return _TILDE.get(numbers[0])
    if final != "u":
        return _FINAL.get(final)
    code = numbers[0]
    if code in _CODES:
        return _CODES[code]
    # kitty keeps its own keys in a private area of Unicode.
    is_character = 0x20 <= code < 0xD800 or 0x10000 <= code < 0x110000
    return chr(code) if is_character else None
