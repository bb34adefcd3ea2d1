"""The terminal: bytes from a guest in, lines to draw, answers and events out.

It does no input or output itself and knows no UI. Whatever comes in is taken as hostile: nothing
raises, and memory stays within the bounds that the constants of this package state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quicksand_tui.terminal import keys, mouse, paste
from quicksand_tui.terminal.frozen import FrozenLines
from quicksand_tui.terminal.interpreter import Interpreter
from quicksand_tui.terminal.palette import Colours, Palette
from quicksand_tui.terminal.parser import Parser
from quicksand_tui.terminal.rows import BLANK, NO_WRAP, SHORT_WRAP, Row, Run
from quicksand_tui.terminal.state import State

if TYPE_CHECKING:
    from quicksand_tui.terminal.events import Event
    from quicksand_tui.terminal.modes import CursorShape, Modes
    from quicksand_tui.terminal.mouse import MouseEvent
    from quicksand_tui.terminal.packing import Packed

COLUMNS_MIN: Final = 2
"""What a character of two columns needs."""

SIZE_MAX: Final = 1000
"""Columns, and rows. Larger sizes are taken for this one."""

HOLD_MAX_S: Final = 0.2
"""How long a program's wish not to be drawn (mode 2026) is heeded."""


@dataclass(frozen=True, slots=True)
class CursorView:
    """The cursor, as it is to be drawn."""

    line: int
    x: int
    visible: bool
    shape: CursorShape
    blinks: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """What changed since the last time."""

    lines: tuple[range, ...]
    """Numbers of lines that are on the screen."""
    all: bool
    """Every line of the screen changed, perhaps because they moved; ``lines`` has them, too."""


class Terminal:
    """A terminal of ``columns`` and ``rows``, which keeps ``scrollback`` lines that left it.

    Lines have numbers. The oldest that is kept is ``first_line``, the screen begins at
    ``screen_line``, and ``end_line`` is the first that is not there any more. A line keeps its
    number as output goes on; a new width, clearing the scrollback and changing to the alternate
    screen and back give other lines the same numbers.
    """

    def __init__(
        self,
        columns: int = 80,
        rows: int = 24,
        *,
        scrollback: int = 10_000,
        palette: Palette | None = None,
        cell_pixels: tuple[int, int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``palette`` is what programs are told that ask for colours; ``cell_pixels``, width and
        height of a cell, likewise. ``clock`` gives seconds."""
        self._state = State(
            _clamp(columns, COLUMNS_MIN),
            _clamp(rows, 1),
            scrollback=max(0, scrollback),
            palette=palette or Palette(),
            cell_pixels=cell_pixels,
            clock=clock,
        )
        self._screen = self._state.screen
        self._parser = Parser(Interpreter(self._state))

    # What comes in

    def feed(self, data: bytes) -> None:
        """Take output of the guest, cut anywhere. Never raises."""
        self._parser.feed(data)

    def resize(
        self, columns: int, rows: int, *, cell_pixels: tuple[int, int] | None = None
    ) -> None:
        """Have another size. Lines of the main screen are laid out anew."""
        if cell_pixels is not None:
            self._state.cell_pixels = cell_pixels
        columns, rows = _clamp(columns, COLUMNS_MIN), _clamp(rows, 1)
        if (columns, rows) != (self.columns, self.rows):
            self._screen.resize(columns, rows)

    def set_palette(self, palette: Palette) -> None:
        """The app has other colours now."""
        self._state.colours.palette = palette

    # What goes out

    def take_replies(self) -> bytes:
        """Answers that the guest is to get as if they were typed; 4 KiB at most."""
        return self._state.replies.take()

    def take_events(self) -> tuple[Event, ...]:
        """What happened besides drawing: the last event of each kind, and a few notifications."""
        return self._state.events.take()

    def take_damage(self) -> Damage:
        """Which lines of the screen are to be drawn anew. Does not say whether the cursor moved."""
        self._state.held_since = None
        grid = self._screen.grid
        everything = grid.all_dirty
        top = self.screen_line
        ranges: list[range] = []
        for y in grid.take_dirty():
            if ranges and ranges[-1].stop == top + y:
                ranges[-1] = range(ranges[-1].start, top + y + 1)
            else:
                ranges.append(range(top + y, top + y + 1))
        return Damage(tuple(ranges), everything)

    @property
    def hold_s(self) -> float:
        """For how many seconds the damage should not be taken and drawn, as the screen is half
        made. Mostly 0; and 0 again after `HOLD_MAX_S` at the latest, whatever the program does."""
        since = self._state.held_since
        if since is None or not self.modes.synchronized:
            return 0.0
        return max(0.0, HOLD_MAX_S - max(0.0, self._state.clock() - since))

    # What there is to see

    @property
    def columns(self) -> int:
        return self._screen.columns

    @property
    def rows(self) -> int:
        return self._screen.height

    @property
    def modes(self) -> Modes:
        """To be read only."""
        return self._state.modes

    @property
    def colours(self) -> Colours:
        """The palette with the guest's changes. To be read only."""
        return self._state.colours

    @property
    def title(self) -> str:
        """One line, fit to be shown; 256 characters at most."""
        return self._state.title

    @property
    def cwd(self) -> str:
        """The directory in the guest that its shell told; empty if none."""
        return self._state.cwd

    @property
    def is_alternate(self) -> bool:
        """The alternate screen is shown. It has no scrollback."""
        return self._screen.is_alternate

    @property
    def cursor(self) -> CursorView:
        cursor, modes = self._screen.cursor, self.modes
        return CursorView(
            line=self.screen_line + cursor.y,
            x=cursor.x,
            visible=modes.cursor_visible,
            shape=modes.cursor_shape,
            blinks=modes.cursor_blinks,
        )

    @property
    def screen_line(self) -> int:
        scrollback = self._screen.scrollback
        return scrollback.first + len(scrollback)

    @property
    def first_line(self) -> int:
        return self.screen_line if self.is_alternate else self._screen.scrollback.first

    @property
    def end_line(self) -> int:
        return self.screen_line + self.rows

    def line(self, number: int) -> list[Run]:
        """What is drawn for a line, from column 0; behind it, the line is blank. A line that is not
        there is blank."""
        row = self._row(number)
        if row is not None:
            return row.runs()
        packed = self._packed(number)
        return [] if packed is None else self._screen.packer.runs(packed)

    def cells(self, number: int) -> list[str]:
        """The characters of a line by column: of one that takes two columns, the second is empty.
        There may be fewer than columns: behind them, the line is blank."""
        row = self._row(number)
        if row is not None:
            # What is empty because a character did not fit is no part of the line.
            return row.cells[: len(row.cells) - (row.wrap == SHORT_WRAP)]
        packed = self._packed(number)
        return [] if packed is None else self._screen.packer.cells(packed)

    def text(self, number: int) -> str:
        """The characters of a line, without the blanks at its end unless it goes on in the next."""
        row = self._row(number)
        if row is not None:
            text = "".join(self.cells(number))
            return text if row.wrap != NO_WRAP else text.rstrip(BLANK)
        packed = self._packed(number)
        return "" if packed is None else packed.shown_text

    def is_wrapped(self, number: int) -> bool:
        """Whether the line goes on in the next one."""
        line = self._row(number) or self._packed(number)
        return line is not None and line.wrap != NO_WRAP

    def mark(self, number: int) -> int:
        """Bits of `Mark`: what the shell says of the line."""
        line = self._row(number) or self._packed(number)
        return 0 if line is None else line.mark

    def freeze(self) -> FrozenLines:
        """All lines as they are now; what comes later does not change them."""
        screen = self._screen
        texts, attributes = ([], []) if self.is_alternate else screen.scrollback.freeze()
        for row in screen.grid.rows:
            text, attribute = screen.packer.pack(row)
            texts.append(text)
            attributes.append(attribute)
        return FrozenLines(
            texts, attributes, first=self.first_line, columns=self.columns, packer=screen.packer
        )

    def _row(self, number: int) -> Row | None:
        """A row of the screen, if the line is on it."""
        y = number - self.screen_line
        return self._screen.grid.rows[y] if 0 <= y < self.rows else None

    def _packed(self, number: int) -> Packed | None:
        """A row of the scrollback, if the line is in it."""
        if self.first_line <= number < self.screen_line:
            return self._screen.scrollback[number - self._screen.scrollback.first]
        return None

    def link(self, number: int) -> str:
        """The address for the ``link`` of a style: http, https, file or mailto. Empty if it is none
        any more."""
        return self._state.links.address(number)

    # Input from the user

    def encode_key(self, key: str, character: str | None = None) -> bytes:
        """What a key sends; see `keys.encode_key`."""
        return keys.encode_key(key, self.modes, character)

    def encode_mouse(self, event: MouseEvent) -> bytes:
        """What an event of the mouse sends, if anything."""
        return mouse.encode_mouse(event, self.modes, alternate=self.is_alternate)

    def encode_paste(self, text: str) -> bytes:
        """What pasting a text sends."""
        return paste.encode_paste(text, bracketed=self.modes.bracketed_paste)

    def encode_focus(self, focused: bool) -> bytes:
        """What is sent when the terminal gets or loses the focus, if a program wants to know."""
        if not self.modes.focus_events:
            return b""
        return b"\x1b[I" if focused else b"\x1b[O"


def _clamp(size: int, least: int) -> int:
    return min(max(size, least), SIZE_MAX)
