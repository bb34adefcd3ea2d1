"""Modes that a guest's program sets and resets. Numbers are those of xterm's ctlseqs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final


class MouseTracking(Enum):
    """Which events of the mouse a program wants to hear of."""

    OFF = 0
    X10 = 9
    """Presses only, without modifiers."""
    NORMAL = 1000
    """Presses, releases, the wheel."""
    BUTTON = 1002
    """Likewise, and motion while a button is held."""
    ANY = 1003
    """Likewise, and all motion."""


class MouseEncoding(Enum):
    """How events of the mouse are written."""

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
    """What is set, as it is after a reset. Only the terminal changes it."""

    application_cursor: bool = False
    """Arrow keys send SS3 (DECCKM)."""
    application_keypad: bool = False
    """The keypad sends SS3 (DECNKM)."""
    backspace_sends_bs: bool = False
    """Backspace sends BS, not DEL (DECBKM)."""
    modify_other_keys: int = 0
    """0, 1 or 2: which keys with modifiers send sequences (xterm's modifyOtherKeys)."""
    format_other_keys: int = 0
    """1: these sequences end with ``u`` (xterm's formatOtherKeys)."""
    insert: bool = False
    """Text pushes what is right of it away (IRM)."""
    newline: bool = False
    """A line feed returns the cursor, too, and Enter sends both (LNM)."""
    autowrap: bool = True
    """Text goes on in the next row (DECAWM)."""
    origin: bool = False
    """Rows count from the scroll region's first (DECOM)."""
    reverse_video: bool = False
    """The whole screen is reversed (DECSCNM)."""
    cursor_visible: bool = True
    cursor_blinks: bool = True
    cursor_shape: CursorShape = CursorShape.BLOCK
    mouse_tracking: MouseTracking = MouseTracking.OFF
    mouse_encoding: MouseEncoding = MouseEncoding.X10
    alternate_scroll: bool = True
    """On the alternate screen the wheel sends arrow keys, unless the mouse is tracked."""
    focus_events: bool = False
    bracketed_paste: bool = False
    synchronized: bool = False
    """A program is drawing; what is seen now is half of it. `Terminal.hold_s` says for how long
    to heed it."""


ANSI_FLAGS: Final = {4: "insert", 20: "newline"}
"""Of SM and RM: number to field of `Modes`."""

PRIVATE_FLAGS: Final = {
    1: "application_cursor",
    5: "reverse_video",
    6: "origin",
    7: "autowrap",
    12: "cursor_blinks",
    25: "cursor_visible",
    66: "application_keypad",
    67: "backspace_sends_bs",
    1004: "focus_events",
    1007: "alternate_scroll",
    2004: "bracketed_paste",
    2026: "synchronized",
}
"""Of DECSET and DECRST, those that are a field of `Modes`."""

TRACKING: Final = {mode.value: mode for mode in MouseTracking if mode is not MouseTracking.OFF}
ENCODINGS: Final = {mode.value: mode for mode in MouseEncoding if mode is not MouseEncoding.X10}

ALTERNATE_SCREEN: Final = frozenset({47, 1047, 1049})

GRAPHEME_CLUSTERS: Final = 2027
"""Characters that join share a cell. Always so here."""

_SET, _RESET, _ALWAYS_SET, _UNKNOWN = 1, 2, 3, 0
"""What DECRQM answers."""


def ansi_state(modes: Modes, number: int) -> int:
    """What DECRQM answers for a mode of SM."""
    if number in ANSI_FLAGS:
        return _SET if getattr(modes, ANSI_FLAGS[number]) else _RESET
    return _UNKNOWN


def private_state(modes: Modes, number: int, *, alternate: bool) -> int:
    """What DECRQM answers for a mode of DECSET. ``alternate``: that screen is shown."""
    if number in PRIVATE_FLAGS:
        is_set = bool(getattr(modes, PRIVATE_FLAGS[number]))
    elif number in TRACKING:
        is_set = modes.mouse_tracking is TRACKING[number]
    elif number in ENCODINGS:
        is_set = modes.mouse_encoding is ENCODINGS[number]
    elif number in ALTERNATE_SCREEN:
        is_set = alternate
    elif number == GRAPHEME_CLUSTERS:
        return _ALWAYS_SET
    else:
        return _UNKNOWN
    return _SET if is_set else _RESET
