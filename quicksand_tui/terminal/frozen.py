"""The lines of a terminal as they were at one moment, to be read while its output goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.terminal.rows import NO_WRAP, Run
from quicksand_tui.terminal.scrollback import stored_line

if TYPE_CHECKING:
    from quicksand_tui.terminal.packing import Packed, Packer


class FrozenLines:
    """Scrollback and screen. Lines have the numbers that they had in the terminal, and never get
    others."""

    def __init__(
        self,
        texts: list[str | bytes],
        attributes: list[bytes],
        *,
        first: int,
        columns: int,
        packer: Packer,
    ) -> None:
        """``texts`` and ``attributes`` are what is stored of each line; ``first`` is the number of
        the first."""
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
        """What is drawn for a line; see `Terminal.line`."""
        packed = self._packed(number)
        return [] if packed is None else self._packer.runs(packed)

    def cells(self, number: int) -> list[str]:
        """Strings by column; see `Terminal.cells`."""
        packed = self._packed(number)
        return [] if packed is None else self._packer.cells(packed)

    def text(self, number: int) -> str:
        """The characters of a line; see `Terminal.text`."""
        packed = self._packed(number)
        return "" if packed is None else packed.shown_text

    def is_wrapped(self, number: int) -> bool:
        """Whether the line goes on in the next one."""
        packed = self._packed(number)
        return packed is not None and packed.wrap != NO_WRAP

    def mark(self, number: int) -> int:
        """Bits of `Mark`."""
        packed = self._packed(number)
        return 0 if packed is None else packed.mark
