"""What the terminal answers to a program: bounded, so that a flood of questions is no flood of
answers into the guest's input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

BURST_MAX: Final = 4096
"""Bytes that wait at most to be taken. A program that asks everything when it starts gets less
than 1 KiB of answers."""

RATE: Final = 16 * 1024
"""Bytes per second beyond the burst."""


class Replies:
    """A queue of answers. One that is over the limits is dropped as a whole: half of it would be
    taken for keys."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._queue = bytearray()
        self._room = float(BURST_MAX)
        self._asked = clock()

    def send(self, text: str) -> None:
        """Queue an answer of ASCII."""
        now = self._clock()
        self._room = min(BURST_MAX, self._room + max(0.0, now - self._asked) * RATE)
        self._asked = now
        if len(text) > self._room or len(self._queue) + len(text) > BURST_MAX:
            return
        self._room -= len(text)
        self._queue += text.encode("ascii")

    def csi(self, text: str) -> None:
        """Queue a control sequence."""
        self.send(f"\x1b[{text}")

    def dcs(self, text: str) -> None:
        """Queue a device control string."""
        self.send(f"\x1bP{text}\x1b\\")

    def take(self) -> bytes:
        """What was queued."""
        taken = bytes(self._queue)
        self._queue.clear()
        return taken
