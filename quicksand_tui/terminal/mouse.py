"""The mouse as the bytes that a terminal sends for it, by xterm's ctlseqs ("Mouse Tracking")."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final

from quicksand_tui.terminal.modes import Modes, MouseEncoding, MouseTracking

WHEEL_LINES: Final = 3
"""Arrow keys for one step of the wheel on the alternate screen, as in VTE."""


class MouseAction(Enum):
    PRESS = "press"
    """Also each step of the wheel."""
    RELEASE = "release"
    MOVE = "move"


class MouseButton(IntEnum):
    """Buttons by their code in reports."""

    LEFT = 0
    MIDDLE = 1
    RIGHT = 2
    NONE = 3
    """For motion with no button held."""
    WHEEL_UP = 64
    WHEEL_DOWN = 65
    WHEEL_LEFT = 66
    WHEEL_RIGHT = 67
    BACK = 128
    FORWARD = 129


@dataclass(frozen=True, slots=True, kw_only=True)
class MouseEvent:
    """Something that the mouse did, at a cell of the screen that counts from 0."""

    action: MouseAction
    button: MouseButton = MouseButton.NONE
    x: int
    y: int
    shift: bool = False
    alt: bool = False
    ctrl: bool = False


_MOTION: Final = 32
_X10_MAX: Final = 255
_UTF8_MAX: Final = 2047
"""The largest number that the encoding can write: a byte, and two bytes of UTF-8."""


def encode_mouse(event: MouseEvent, modes: Modes, *, alternate: bool) -> bytes:
    """The bytes for an event; none if the program does not want to hear of it. Motion within one
    cell is for the caller to leave out."""
    if modes.mouse_tracking is MouseTracking.OFF:
        return _wheel_as_arrows(event, modes) if alternate else b""
    if not _is_wanted(event, modes.mouse_tracking):
        return b""
    code = int(event.button)
    if event.action is MouseAction.RELEASE and modes.mouse_encoding is not MouseEncoding.SGR:
        code = MouseButton.NONE
    if event.action is MouseAction.MOVE:
        code += _MOTION
    if modes.mouse_tracking is not MouseTracking.X10:
        code += 4 * event.shift + 8 * event.alt + 16 * event.ctrl
    is_release = event.action is MouseAction.RELEASE
    return _report(code, event.x + 1, event.y + 1, modes.mouse_encoding, is_release=is_release)


def _is_wanted(event: MouseEvent, tracking: MouseTracking) -> bool:
    if event.x < 0 or event.y < 0:
        return False
    if tracking is MouseTracking.X10:
        return event.action is MouseAction.PRESS and event.button <= MouseButton.RIGHT
    if event.action is MouseAction.MOVE:
        held = event.button is not MouseButton.NONE
        return tracking is MouseTracking.ANY or (held and tracking is MouseTracking.BUTTON)
    if event.action is MouseAction.RELEASE:
        return not MouseButton.WHEEL_UP <= event.button <= MouseButton.WHEEL_RIGHT
    return event.button is not MouseButton.NONE


def _report(code: int, x: int, y: int, encoding: MouseEncoding, *, is_release: bool) -> bytes:
    if encoding is MouseEncoding.SGR:
        return f"\x1b[<{code};{x};{y}{'m' if is_release else 'M'}".encode()
    if encoding is MouseEncoding.URXVT:
        return f"\x1b[{code + 32};{x};{y}M".encode()
    numbers = (code + 32, x + 32, y + 32)
    if max(numbers) > (_UTF8_MAX if encoding is MouseEncoding.UTF8 else _X10_MAX):
        return b""
    if encoding is MouseEncoding.UTF8:
        return b"\x1b[M" + "".join(map(chr, numbers)).encode()
    return b"\x1b[M" + bytes(numbers)


def _wheel_as_arrows(event: MouseEvent, modes: Modes) -> bytes:
    if not modes.alternate_scroll or event.action is not MouseAction.PRESS:
        return b""
    letters = {MouseButton.WHEEL_UP: b"A", MouseButton.WHEEL_DOWN: b"B"}
    if event.button not in letters:
        return b""
    introducer = b"\x1bO" if modes.application_cursor else b"\x1b["
    return (introducer + letters[event.button]) * WHEEL_LINES
