"""Where the next character goes, and how it looks."""

from __future__ import annotations

from dataclasses import dataclass

from quicksand_tui.terminal.style import PLAIN, Style


@dataclass(slots=True)
class Cursor:
    """The place of the next character. ``x`` and ``y`` count from 0."""

    x: int = 0
    y: int = 0
    pending: bool = False
    """The last column was written: the next character goes to the next row first."""
    style: Style = PLAIN
    blank: Style = PLAIN
    """What erasing leaves with this style."""


@dataclass(frozen=True, slots=True)
class SavedCursor:
    """What DECSC saves (VT510 manual), with the pending wrap as xterm and DEC STD 070 have it."""

    x: int = 0
    y: int = 0
    pending: bool = False
    style: Style = PLAIN
    charsets: tuple[str, ...] = ("B", "B", "B", "B", "0")
    origin: bool = False


class Tabs:
    """Columns where a tab stops."""

    EVERY = 8

    def __init__(self, columns: int) -> None:
        self._stops = bytearray()
        self.resize(columns)

    def resize(self, columns: int) -> None:
        """Columns that are new have a stop every eight; the others keep theirs."""
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
        """The next stop behind column ``x``, or the last column."""
        found = self._stops.find(1, x + 1)
        return found if found >= 0 else len(self._stops) - 1

    def before(self, x: int) -> int:
        """The next stop before column ``x``, or the first column."""
        return max(0, self._stops.rfind(1, 0, x))
