"""The terminal: takes bytes from a program, and gives lines to draw, answers and events.

It does no input or output itself and knows no UI. Input is treated as hostile: nothing raises, and
memory stays within the bounds that the constants of this package give.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quicksand_vt import input_encoding, keyboard
from quicksand_vt.cell_rows import BLANK, NO_WRAP, SHORT_WRAP, Row, Run
from quicksand_vt.control import Interpreter
from quicksand_vt.parser import Parser
from quicksand_vt.stored_lines import FrozenLines
from quicksand_vt.style import Colours, Palette
from quicksand_vt.surface import Surface
from quicksand_vt.terminal_state import COLUMNS_MIN, SIZE_MAX, State

if TYPE_CHECKING:
    from quicksand_vt.input_encoding import MouseEvent
    from quicksand_vt.modes import CursorShape, Modes
    from quicksand_vt.outbox import Event
    from quicksand_vt.packing import Packed
    from quicksand_vt.surface import MakeGraphics

HOLD_MAX_S: Final = 0.2
"""How long mode 2026 (synchronized output) can delay drawing."""


@dataclass(frozen=True, slots=True)
class CursorView:
    """The cursor as it is drawn."""

    line: int
    x: int
    visible: bool
    shape: CursorShape
    blinks: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """The lines that changed since the last call."""

    lines: tuple[range, ...]
    """Ranges of line numbers, all on the screen."""
    all: bool
    """Every line of the screen changed, perhaps by scrolling; ``lines`` then holds all of them."""


class Terminal:
    """A terminal of ``columns`` and ``rows``, with at most ``scrollback`` lines that left the
    screen.

    Lines have numbers: the oldest one kept is ``first_line``, the screen begins at ``screen_line``,
    and ``end_line`` is one past the last. Output does not change a line's number; a new width,
    clearing the scrollback, and switching to the alternate screen and back renumber lines.
    """

    def __init__(
        self,
        columns: int = 80,
        rows: int = 24,
        *,
        name: str = "quicksand-vt",
        scrollback: int = 10_000,
        palette: Palette | None = None,
        cell_pixels: tuple[int, int] | None = None,
        checksums: bool = False,
        resizable: bool = False,
        clock: Callable[[], float] = time.monotonic,
        graphics: MakeGraphics | None = None,
    ) -> None:
        """``name`` (ASCII), ``palette``, and ``cell_pixels``, the width and height of a cell, are
        told to programs that ask; with ``checksums``, for tests, also the checksums of rectangles
        (DECRQCRA). With ``resizable``, programs may change the size, which otherwise belongs to
        somebody else. ``clock`` returns seconds. ``graphics`` makes the decoder of pictures;
        without it, they are skipped, and programs are told that there are none."""
        self._state = State(
            _clamp(columns, COLUMNS_MIN),
            _clamp(rows, 1),
            name=name,
            scrollback=max(0, scrollback),
            palette=palette or Palette(),
            cell_pixels=cell_pixels,
            checksums=checksums,
            resizable=resizable,
            clock=clock,
        )
        self._screen = self._state.screen
        sixels = None
        if graphics is not None:
            self._state.graphics = made = graphics(Surface(self._state))
            sixels = made.sixels
        self._parser = Parser(Interpreter(self._state), sixels)

    def end_graphics(self) -> None:
        """Forgets all pictures, and skips further ones. Otherwise they are kept as long as the
        terminal, which lasts until the garbage collector has found it."""
        if self._state.graphics is not None:
            self._state.graphics.forget()
            self._state.graphics = self._parser.sixels = None

    # Input

    def feed(self, data: bytes, *, answered: bool = True) -> None:
        """Takes output of the program, cut anywhere. Never raises. Without ``answered``, queries
        that end in ``data`` get no answer."""
        self._state.replies.muted = not answered
        self._parser.feed(data)

    def resize(
        self, columns: int, rows: int, *, cell_pixels: tuple[int, int] | None = None
    ) -> None:
        """Changes the size, and lays out the lines of the main screen anew."""
        if cell_pixels is not None:
            self._state.cell_pixels = cell_pixels
        self._state.resize(columns, rows)

    # Output

    def take_replies(self) -> bytes:
        """Removes and returns the answers to send to the program, at most 4 KiB."""
        return self._state.replies.take()

    def take_events(self) -> tuple[Event, ...]:
        """Removes and returns the last event of each kind, and a few notifications."""
        return self._state.events.take()

    def take_damage(self) -> Damage:
        """Returns the lines to draw anew; moves of the cursor are not part of it."""
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
        """Seconds for which drawing should wait because the program is in the middle of it (mode
        2026): mostly 0, and at most `HOLD_MAX_S` in all."""
        since = self._state.held_since
        if since is None or not self.modes.synchronized:
            return 0.0
        return max(0.0, HOLD_MAX_S - max(0.0, self._state.clock() - since))

    # State

    @property
    def columns(self) -> int:
        return self._screen.columns

    @property
    def rows(self) -> int:
        return self._screen.height

    @property
    def modes(self) -> Modes:
        """The modes; do not change them."""
        return self._state.modes

    @property
    def colours(self) -> Colours:
        """The palette with the program's changes; do not change it."""
        return self._state.colours

    @property
    def title(self) -> str:
        """The title, sanitised, one line of at most 256 characters."""
        return self._state.title

    @property
    def cwd(self) -> str:
        """The directory that a shell reported (OSC 7); "" if none."""
        return self._state.cwd

    @property
    def is_alternate(self) -> bool:
        """Whether the alternate screen is shown, which has no scrollback."""
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
        """Returns the runs of a line from column 0; the rest is blank, as is a line that does not
        exist."""
        row = self._row(number)
        if row is not None:
            return row.runs()
        packed = self._packed(number)
        return [] if packed is None else self._screen.packer.runs(packed)

    def cells(self, number: int) -> list[str]:
        """Returns the characters of a line by column; the second column of a wide one is "". The
        list may be shorter than the screen is wide; the rest is blank."""
        row = self._row(number)
        if row is not None:
            # The column left empty because a wide character did not fit is not part of the line.
            return row.cells[: len(row.cells) - (row.wrap == SHORT_WRAP)]
        packed = self._packed(number)
        return [] if packed is None else self._screen.packer.cells(packed)

    def text(self, number: int) -> str:
        """Returns the characters of a line, without trailing blanks unless it wraps."""
        row = self._row(number)
        if row is not None:
            text = "".join(self.cells(number))
            return text if row.wrap != NO_WRAP else text.rstrip(BLANK)
        packed = self._packed(number)
        return "" if packed is None else packed.shown_text

    def is_wrapped(self, number: int) -> bool:
        """Whether the line continues in the next row."""
        line = self._row(number) or self._packed(number)
        return line is not None and line.wrap != NO_WRAP

    def mark(self, number: int) -> int:
        """Returns the shell's marks on the line, as bits of `Mark`."""
        line = self._row(number) or self._packed(number)
        return 0 if line is None else line.mark

    def freeze(self) -> FrozenLines:
        """Returns a copy of all lines, which later output does not change."""
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
        """Returns the row of the screen, if the line is on it."""
        y = number - self.screen_line
        return self._screen.grid.rows[y] if 0 <= y < self.rows else None

    def _packed(self, number: int) -> Packed | None:
        """Returns the row of the scrollback, if the line is in it."""
        if self.first_line <= number < self.screen_line:
            return self._screen.scrollback[number - self._screen.scrollback.first]
        return None

    def link(self, number: int) -> str:
        """Returns the address (http, https, file or mailto) for the ``link`` of a style; "" if it
        is forgotten."""
        return self._state.links.address(number)

    # Input from the user

    def encode_key(self, key: str, character: str | None = None) -> bytes:
        """Returns what a key sends; see `input_encoding.encode_key`."""
        return input_encoding.encode_key(key, self.modes, character)

    def encode_keys(self, data: bytes) -> bytes:
        """Returns whole keys, as the user's terminal has sent them, in the program's form."""
        return keyboard.for_program(data, self.modes, self._state.keyboard.flags)

    def encode_mouse(self, event: MouseEvent) -> bytes:
        """Returns what a mouse event sends, perhaps nothing."""
        return input_encoding.encode_mouse(event, self.modes, alternate=self.is_alternate)

    def encode_paste(self, text: str) -> bytes:
        """Returns what pasting a text sends."""
        return input_encoding.encode_paste(text, bracketed=self.modes.bracketed_paste)

    def encode_focus(self, focused: bool) -> bytes:
        """Returns what a change of focus sends: nothing unless the program asked for it."""
        if not self.modes.focus_events:
            return b""
        return b"\x1b[I" if focused else b"\x1b[O"


def _clamp(size: int, least: int) -> int:
    return min(max(size, least), SIZE_MAX)
