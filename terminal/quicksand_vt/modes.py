"""Settings that a program can change: character sets, the cursor, tab stops, modes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from quicksand_vt.setting_resets import ALTERNATE_SCREEN
from quicksand_vt.style import PLAIN, Style

# VT510 manual, "DEC Special Graphic": the glyphs for the characters 5F to 7E.
_DRAWN: Final = " ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
_SPECIAL: Final = {0x5F + n: char for n, char in enumerate(_DRAWN)}
_BRITISH: Final = {ord("#"): "£"}
_TABLES: Final = {"0": _SPECIAL, "A": _BRITISH}
"""By the final character of their designation; all other sets are treated as ASCII."""

ASCII: Final = "B"


class Charsets:
    """The sets G0 to G3, the one in use, and the one for the next character only."""

    def __init__(self) -> None:
        self._sets = [ASCII] * 4
        self._used = 0
        self._single: int | None = None
        self.translating = False
        """Text must pass through `translate`."""

    def designate(self, number: int, final: str) -> None:
        """Puts a set into G0 to G3 (``ESC ( final`` and the like)."""
        self._sets[number] = final if final in _TABLES else ASCII
        self._update()

    def use(self, number: int) -> None:
        """Uses a set from now on (SI, SO, LS2, LS3)."""
        self._used = number
        self._update()

    def use_once(self, number: int) -> None:
        """Uses a set for one character (SS2, SS3)."""
        self._single = number
        self._update()

    def translate(self, text: str) -> str:
        """Returns the glyphs for ``text``."""
        first = ""
        if self._single is not None:
            first = text[:1].translate(_TABLES.get(self._sets[self._single], {}))
            text, self._single = text[1:], None
            self._update()
        return first + text.translate(_TABLES.get(self._sets[self._used], {}))

    def _update(self) -> None:
        self.translating = self._single is not None or self._sets[self._used] != ASCII

    def state(self) -> tuple[str, ...]:
        return (*self._sets, str(self._used))

    def restore(self, state: tuple[str, ...]) -> None:
        """Restores what DECSC saved."""
        *self._sets, used = state
        self._used, self._single = int(used), None
        self._update()

    def reset(self) -> None:
        self.restore((ASCII, ASCII, ASCII, ASCII, "0"))


@dataclass(slots=True)
class Cursor:
    """The position and style of the next character. ``x`` and ``y`` count from 0."""

    x: int = 0
    y: int = 0
    pending: bool = False
    """The last column was written, so the next character wraps first."""
    style: Style = PLAIN
    blank: Style = PLAIN
    """The style that erasing leaves."""


@dataclass(frozen=True, slots=True)
class SavedCursor:
    """The state that DECSC saves (VT510 manual), with the pending wrap, as in xterm and DEC STD
    070."""

    x: int = 0
    y: int = 0
    pending: bool = False
    style: Style = PLAIN
    charsets: tuple[str, ...] = ("B", "B", "B", "B", "0")
    origin: bool = False


class Tabs:
    """The tab stops."""

    EVERY = 8

    def __init__(self, columns: int) -> None:
        self._stops = bytearray()
        self.resize(columns)

    def resize(self, columns: int) -> None:
        """Gives new columns a stop every eight; the others keep theirs."""
        more = range(len(self._stops), columns)
        self._stops += bytes(x % self.EVERY == 0 for x in more)
        del self._stops[columns:]

    def reset(self) -> None:
        columns = len(self._stops)
        self._stops.clear()
        self.resize(columns)

    def set(self, x: int) -> None:
        self._stops[x] = 1

    def clear(self, x: int) -> None:
        self._stops[x] = 0

    def clear_all(self) -> None:
        self._stops[:] = bytes(len(self._stops))

    def after(self, x: int) -> int:
        """Returns the next stop after column ``x``, or the last column."""
        found = self._stops.find(1, x + 1)
        return found if found >= 0 else len(self._stops) - 1

    def before(self, x: int) -> int:
        """Returns the last stop before column ``x``, or the first column."""
        return max(0, self._stops.rfind(1, 0, x))


class MouseTracking(Enum):
    """The mouse events that a program wants; the values are the numbers of the modes."""

    OFF = 0
    X10 = 9
    """Presses only, without modifiers."""
    NORMAL = 1000
    """Presses, releases, the wheel."""
    BUTTON = 1002
    """Presses and releases, and motion while a button is held."""
    ANY = 1003
    """Presses, releases, and all motion."""


class MouseEncoding(Enum):
    """The encoding of mouse events; the values are the numbers of the modes."""

    X10 = 0
    UTF8 = 1005
    SGR = 1006
    URXVT = 1015


class CursorShape(Enum):
    BLOCK = "block"
    UNDERLINE = "underline"
    BAR = "bar"


@dataclass(slots=True)
class Modes:
    """The modes, with their values after a reset. Only the terminal changes them."""

    application_cursor: bool = False
    """Arrow keys send SS3 (DECCKM)."""
    application_keypad: bool = False
    """The keypad sends SS3 (DECNKM)."""
    backspace_sends_bs: bool = False
    """Backspace sends BS, not DEL (DECBKM)."""
    modify_other_keys: int = 0
    """Which keys with modifiers send sequences: 0, 1 or 2 (xterm's modifyOtherKeys)."""
    format_other_keys: int = 0
    """With 1, these sequences end with ``u`` (xterm's formatOtherKeys)."""
    insert: bool = False
    """Text moves the rest of the row to the right (IRM)."""
    newline: bool = False
    """A line feed also returns the carriage, and Enter sends CR LF (LNM)."""
    autowrap: bool = True
    """Text wraps to the next row (DECAWM)."""
    origin: bool = False
    """Positions count from the margins (DECOM)."""
    sides: bool = False
    """Left and right margins may be set (DECLRMM)."""
    reverse_wrap: bool = False
    """Going back from the first column leads to the row above that wraps into this one."""
    reverse_wrap_all: bool = False
    """Likewise, but from any row to the one above, and from the first to the last."""
    wraps_before_tab: bool = False
    """xterm's workaround for a bug of more(1): a pending wrap comes before a tab."""
    allows_columns: bool = False
    """DECCOLM has effects: it clears the screen and removes the margins. The width stays, which is
    the user's."""
    wide_columns: bool = False
    """DECCOLM is set."""
    smooth_scroll: bool = False
    """DECSCLM; remembered, without an effect."""
    form_feed: bool = False
    """DECPFF; remembered, without an effect, for lack of a printer."""
    print_extent: bool = False
    """DECPEX; remembered, without an effect, for lack of a printer."""
    national: bool = False
    """DECNRCM; remembered, without an effect: Britain's set is there in any case."""
    reverse_video: bool = False
    """The whole screen is reversed (DECSCNM)."""
    cursor_visible: bool = True
    cursor_blinks: bool = True
    cursor_shape: CursorShape = CursorShape.BLOCK
    mouse_tracking: MouseTracking = MouseTracking.OFF
    mouse_encoding: MouseEncoding = MouseEncoding.X10
    alternate_scroll: bool = True
    """On the alternate screen, the wheel sends arrow keys unless the mouse is tracked."""
    focus_events: bool = False
    bracketed_paste: bool = False
    synchronized: bool = False
    """The program is in the middle of drawing; see `Terminal.hold_s`."""
    sixels_at_top: bool = False
    """Sixel pictures are drawn in the top left corner and move nothing (DECSDM)."""
    cursor_behind_sixels: bool = False
    """After a sixel picture the cursor is on its right."""
    clusters: bool = False
    """All parts of a character, as readers see it, share a cell; see `width`."""


ANSI_FLAGS: Final = {4: "insert", 20: "newline"}
"""The fields of `Modes` by their number in SM and RM."""

PRIVATE_FLAGS: Final = {
    1: "application_cursor",
    3: "wide_columns",
    4: "smooth_scroll",
    5: "reverse_video",
    6: "origin",
    7: "autowrap",
    12: "cursor_blinks",
    18: "form_feed",
    19: "print_extent",
    25: "cursor_visible",
    40: "allows_columns",
    41: "wraps_before_tab",
    42: "national",
    45: "reverse_wrap",
    66: "application_keypad",
    67: "backspace_sends_bs",
    69: "sides",
    80: "sixels_at_top",
    1004: "focus_events",
    1007: "alternate_scroll",
    1045: "reverse_wrap_all",
    2004: "bracketed_paste",
    2026: "synchronized",
    2027: "clusters",
    8452: "cursor_behind_sixels",
}
"""The fields of `Modes` by their number in DECSET and DECRST."""

TRACKING: Final = {mode.value: mode for mode in MouseTracking if mode is not MouseTracking.OFF}
ENCODINGS: Final = {mode.value: mode for mode in MouseEncoding if mode is not MouseEncoding.X10}

_SET, _RESET, _ALWAYS_SET, _ALWAYS_RESET, _UNKNOWN = 1, 2, 3, 4, 0
"""The answers of DECRQM."""

_NEVER_SET: Final = frozenset({1, 2, 5, 7, 10, 11, 13, 14, 15, 16, 17, 18, 19})
"""Modes of SM that DEC's terminals know: a keyboard that output locks (2, KAM), and settings of
terminals that send their screen as a whole."""

_CURSOR_COUPLING: Final = 60
"""DECHCCM, for terminals that show part of a wider page."""

_OWN_COLOURS: Final = 1070
"""Each sixel picture has colours of its own, as always here."""

_LOCAL_ECHO_OFF: Final = 12
"""SRM, which is set: typed characters are echoed only by the program."""


def ansi_state(modes: Modes, number: int) -> int:
    """Returns DECRQM's answer for a mode of SM."""
    if number in ANSI_FLAGS:
        return _SET if getattr(modes, ANSI_FLAGS[number]) else _RESET
    if number == _LOCAL_ECHO_OFF:
        return _ALWAYS_SET
    return _ALWAYS_RESET if number in _NEVER_SET else _UNKNOWN


def private_state(modes: Modes, number: int, *, alternate: bool) -> int:
    """Returns DECRQM's answer for a mode of DECSET; ``alternate`` says which screen is shown."""
    if number in PRIVATE_FLAGS:
        is_set = bool(getattr(modes, PRIVATE_FLAGS[number]))
    elif number in TRACKING:
        is_set = modes.mouse_tracking is TRACKING[number]
    elif number in ENCODINGS:
        is_set = modes.mouse_encoding is ENCODINGS[number]
    elif number in ALTERNATE_SCREEN:
        is_set = alternate
    elif number == _CURSOR_COUPLING:
        return _ALWAYS_RESET
    elif number == _OWN_COLOURS:
        return _ALWAYS_SET
    else:
        return _UNKNOWN
    return _SET if is_set else _RESET
