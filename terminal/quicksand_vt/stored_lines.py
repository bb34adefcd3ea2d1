"""Lines that are kept packed: those that have left the screen, and copies of all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from quicksand_vt.cell_rows import NO_WRAP, Run
from quicksand_vt.packing import WRAP_BITS, Packed

if TYPE_CHECKING:
    from quicksand_vt.packing import Packer

BYTES_PER_LINE: Final = 1024
"""The average limit per row. A row of 120 columns with ten colours takes 400 bytes; a hostile one
takes many thousands."""

OVERHEAD: Final = 96
"""Bytes that Python takes for two objects and two references to them."""


class Scrollback:
    """Packed rows that have left the screen, the oldest first, at most ``limit`` of them and at
    most ``limit * BYTES_PER_LINE`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._most = limit * BYTES_PER_LINE
        self._size = 0
        """Bytes of all rows."""
        # Two queues, not one of pairs: the garbage collector skips strings and bytes.
        self._texts: deque[str | bytes] = deque()
        """UTF-8 if not ASCII: one emoji makes every character of a Python string take four
        bytes."""
        self._attributes: deque[bytes] = deque()
        self.first = 0
        """The number of the oldest line left: as many lines were dropped."""

    def __len__(self) -> int:
        return len(self._texts)

    def __getitem__(self, index: int) -> Packed:
        return stored_line(self._texts[index], self._attributes[index])

    def __iter__(self) -> Iterator[Packed]:
        return map(stored_line, self._texts, self._attributes)

    def push(self, text: str, attributes: bytes) -> None:
        """Adds the newest line, given by the fields of a `Packed`; drops the oldest ones over the
        limits."""
        stored = text if text.isascii() else text.encode()
        self._texts.append(stored)
        self._attributes.append(attributes)
        self._size += OVERHEAD + len(stored) + len(attributes)
        while len(self._texts) > self.limit or self._size > self._most:
            gone = len(self._texts.popleft()) + len(self._attributes.popleft())
            self._size -= OVERHEAD + gone
            self.first += 1

    def end_line(self) -> None:
        """Ends the newest line, so that it does not wrap into the screen."""
        if self._attributes:
            last = self._attributes[-1]
            self._attributes[-1] = bytes((last[0] & ~WRAP_BITS,)) + last[1:]

    def clear(self) -> None:
        self.first += len(self._texts)
        self._texts.clear()
        self._attributes.clear()
        self._size = 0

    def replace(self, lines: list[Packed]) -> None:
        """Replaces all lines; the oldest keeps its number."""
        first = self.first
        self.clear()
        self.first = first
        for packed in lines:
            self.push(*packed)

    def freeze(self) -> tuple[list[str | bytes], list[bytes]]:
        """Returns a copy of the stored texts and attributes; see `stored_line`."""
        return list(self._texts), list(self._attributes)


def stored_line(stored: str | bytes, attributes: bytes) -> Packed:
    """Returns a line from the text and attributes that `Scrollback.freeze` returned."""
    return Packed(stored if isinstance(stored, str) else stored.decode(), attributes)


class FrozenLines:
    """A copy of scrollback and screen, with the methods of `Terminal`. Lines keep the numbers they
    had in the terminal."""

    def __init__(
        self,
        texts: list[str | bytes],
        attributes: list[bytes],
        *,
        first: int,
        columns: int,
        packer: Packer,
    ) -> None:
        """Takes the stored texts and attributes of each line, and the number of the first."""
        self._texts = texts
        self._attributes = attributes
        self._packer = packer
        self.columns = columns
        self.first_line = first
        self.end_line = first + len(texts)

    def _packed(self, number: int) -> Packed | None:
        if not self.first_line <= number < self.end_line:
            return None
        at = number - self.first_line
        return stored_line(self._texts[at], self._attributes[at])

    def line(self, number: int) -> list[Run]:
        packed = self._packed(number)
        return [] if packed is None else self._packer.runs(packed)

    def cells(self, number: int) -> list[str]:
        packed = self._packed(number)
        return [] if packed is None else self._packer.cells(packed)

    def text(self, number: int) -> str:
        packed = self._packed(number)
        return "" if packed is None else packed.shown_text

    def is_wrapped(self, number: int) -> bool:
        packed = self._packed(number)
        return packed is not None and packed.wrap != NO_WRAP

    def mark(self, number: int) -> int:
        packed = self._packed(number)
        return 0 if packed is None else packed.mark
