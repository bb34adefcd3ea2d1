"""Lines that left the screen at its top: a bounded number of rows, and of bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from quicksand_tui.terminal.packing import WRAP_BITS, Packed

BYTES_PER_LINE: Final = 1024
"""What a row may take on average. A row of 120 columns with ten colours takes 400; one made by
somebody who wants to fill the memory, many thousands."""

OVERHEAD: Final = 96
"""What Python takes for two objects and two references to them."""


class Scrollback:
    """Packed rows, the oldest first. ``limit`` is how many there may be."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._most = limit * BYTES_PER_LINE
        self._size = 0
        """Bytes of all rows."""
        # Two queues and not one of pairs: what they hold is no work for the garbage collector.
        self._texts: deque[str | bytes] = deque()
        """UTF-8 if it is not ASCII: one emoji makes every character of a string four bytes long."""
        self._attributes: deque[bytes] = deque()
        self.first = 0
        """How many lines were dropped: the number of the oldest that is left."""

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Packed:
        return stored_line(self._texts[index], self._attributes[index])

    def __iter__(self) -> Iterator[Packed]:
        return map(stored_line, self._texts, self._attributes)

    def push(self, text: str, attributes: bytes) -> None:
        """Add the newest line, the fields of a `Packed`; the oldest go if there are too many."""
        stored = text if text.isascii() else text.encode()
        self._texts.append(stored)
        self._attributes.append(attributes)
        self._size += OVERHEAD + len(stored) + len(attributes)
        while len(self._texts) > self.limit or self._size > self._most:
            gone = len(self._texts.popleft()) + len(self._attributes.popleft())
            self._size -= OVERHEAD + gone
            self.first += 1

    def end_line(self) -> None:
        """The newest line does not go on any more."""
        if self._attributes:
            last = self._attributes[-1]
            self._attributes[-1] = bytes((last[0] & ~WRAP_BITS,)) + last[1:]

    def clear(self) -> None:
        """Drop all lines."""
        self.first += len(self._texts)
        self._texts.clear()
        self._attributes.clear()
        self._size = 0

    def replace(self, lines: list[Packed]) -> None:
        """Have these instead. The oldest line keeps its number."""
        first = self.first
        self.clear()
        self.first = first
        for packed in lines:
            self.push(*packed)

    def freeze(self) -> tuple[list[str | bytes], list[bytes]]:
        """What is stored of all lines, as it is now; see `stored_line`."""
        return list(self._texts), list(self._attributes)


def stored_line(stored: str | bytes, attributes: bytes) -> Packed:
    """A line of what `Scrollback.freeze` gives."""
    return Packed(stored if isinstance(stored, str) else stored.decode(), attributes)
