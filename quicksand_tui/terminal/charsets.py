"""Character sets of the VT series: the line drawing set, and who of G0 to G3 is in use."""

from __future__ import annotations

from typing import Final

# VT510 manual, "DEC Special Graphic": what is drawn for the characters 5F to 7E.
_DRAWN: Final = " ◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·"
_SPECIAL: Final = {0x5F + n: char for n, char in enumerate(_DRAWN)}
_BRITISH: Final = {ord("#"): "£"}
_TABLES: Final = {"0": _SPECIAL, "A": _BRITISH}
"""By the final character of their designation; all others are taken for ASCII."""

ASCII: Final = "B"


class Charsets:
    """G0 to G3, which one is in use, and which one for the next character only."""

    def __init__(self) -> None:
        self._sets = [ASCII] * 4
        self._used = 0
        self._single: int | None = None
        self.translating = False
        """Text must go through `translate`."""

    def designate(self, number: int, final: str) -> None:
        """ESC ( final and its like: have a set in G0 to G3."""
        self._sets[number] = final if final in _TABLES else ASCII
        self._update()

    def use(self, number: int) -> None:
        """SI, SO, LS2, LS3."""
        self._used = number
        self._update()

    def use_once(self, number: int) -> None:
        """SS2, SS3."""
        self._single = number
        self._update()

    def translate(self, text: str) -> str:
        """What is seen for ``text``."""
        first = ""
        if self._single is not None:
            first = text[:1].translate(_TABLES.get(self._sets[self._single], {}))
            text, self._single = text[1:], None
            self._update()
        return first + text.translate(_TABLES.get(self._sets[self._used], {}))

    def _update(self) -> None:
        self.translating = self._single is not None or self._sets[self._used] != ASCII

    def state(self) -> tuple[str, ...]:
        """What DECSC saves."""
        return (*self._sets, str(self._used))

    def restore(self, state: tuple[str, ...]) -> None:
        """What DECRC restores."""
        *self._sets, used = state
        self._used, self._single = int(used), None
        self._update()

    def reset(self) -> None:
        self.restore((ASCII, ASCII, ASCII, ASCII, "0"))
