"""What a program has changed about the terminal, so that it can be put right when the program does
not get to do it: after a detach, or when the guest dies with an editor open."""

from __future__ import annotations

import re

ON_AT_FIRST = frozenset({7, 25})
"""Line wrap and the cursor: the private modes that are normally set."""

ALTERNATE = frozenset({47, 1047, 1049})

_MODE = re.compile(rb"\x1b\[\?([0-9;]{1,64})([hl])")
_KEYBOARD = re.compile(rb"\x1b\[([><])[0-9;]{0,16}u")
_UNFINISHED = re.compile(rb"\x1b(?:\[(?:[?<>][0-9;]{0,64})?)?$")
KEYBOARD_MAX = 64

# Save the cursor, no scroll region, restore it; normal keypad, ASCII, no colours.
_ALWAYS = b"\x1b7\x1b[r\x1b8\x1b>\x1b(B\x0f\x1b[0m"


class ModeTracker:
    """Follows the output for private modes (DECSET) and pushed keyboard modes (kitty)."""

    def __init__(self) -> None:
        self._changed: set[int] = set()
        self._pushed = 0
        self._carry = b""
        self._seen = False

    def feed(self, data: bytes) -> None:
        """Look at output; sequences may be split between calls."""
        if not self._carry and b"\x1b" not in data:
            return
        self._seen = True
        data = self._carry + data
        for match in _MODE.finditer(data):
            on = match[2] == b"h"
            for number in (int(part[:6]) for part in match[1].split(b";") if part):
                if on == (number in ON_AT_FIRST):
                    self._changed.discard(number)
                elif len(self._changed) < 256:
                    self._changed.add(number)
        for match in _KEYBOARD.finditer(data):
            step = 1 if match[1] == b">" else -1
            self._pushed = min(KEYBOARD_MAX, max(0, self._pushed + step))
        end = _UNFINISHED.search(data, max(0, len(data) - 80))
        self._carry = end[0] if end else b""

    def undo(self) -> bytes:
        """What puts the terminal right again; nothing if it never needed it."""
        if not self._seen:
            return b""
        parts = [b"\x1b[<u"] * self._pushed
        # Out of the alternate screen first: what follows belongs to the normal one.
        for number in sorted(self._changed, key=lambda n: (n not in ALTERNATE, n)):
            parts.append(b"\x1b[?%d%c" % (number, b"h" if number in ON_AT_FIRST else b"l"))
        return b"".join(parts) + _ALWAYS
