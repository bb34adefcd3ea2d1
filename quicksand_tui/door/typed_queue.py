"""Keys typed into a terminal that wait to be sent."""

from __future__ import annotations

from collections import deque

from quicksand_tui.panes.content import TYPED_MAX


class TypedQueue:
    """Input that waits to be sent, in order. Keys survive a broken connection; answers, mouse and
    focus reports concern the screen of that connection, and are dropped with it."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[bytes, bool]] = deque()
        """Data, and whether the user typed it."""
        self._size = 0
        self._next = bytearray()
        """Keys typed after the guest was reverted, but before the connection noticed."""

    def type(self, data: bytes) -> None:
        self._put(data, typed=True)

    def report(self, data: bytes) -> None:
        # A truncated answer would be read as keys.
        if self._size + len(data) <= TYPED_MAX:
            self._put(data, typed=False)

    def type_for_next(self, data: bytes) -> None:
        """Keeps keys for the guest after a revert."""
        self._next += data[: max(0, TYPED_MAX - len(self._next))]

    def _put(self, data: bytes, *, typed: bool) -> None:
        data = data[: max(0, TYPED_MAX - self._size)]
        if data:
            self._waiting.append((data, typed))
            self._size += len(data)

    def take(self) -> bytes:
        """Removes and returns all bytes that wait."""
        taken = b"".join(data for data, _ in self._waiting)
        self._waiting.clear()
        self._size = 0
        return taken

    def broke(self) -> None:
        """Keeps only the keys: a new connection to the same guest follows."""
        typed = [data for data, is_typed in self._waiting if is_typed]
        self.take()
        for data in typed:
            self.type(data)

    def reverted(self) -> None:
        """Drops input for the guest before the revert."""
        self.take()
        self.type(bytes(self._next))
        self._next.clear()
