"""A terminal that is only watched: its screen in a tile, and why it stands out."""

from __future__ import annotations

import re
import time
import unicodedata
from typing import TYPE_CHECKING, Final

from quicksand_panes.guest_terminal import after_string
from quicksand_panes.row_drawing import REPLACEMENT, line_strip, reversed_at
from quicksand_pixels import PLACEHOLDER
from quicksand_vt import Bell, CommandFinished, Terminal

from quicksand_tui.model.wall_plan import Wants, first_row, is_question

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.style import Style as RichStyle
    from textual.strip import Strip

COLUMNS_MAX: Final = 500
ROWS_MAX: Final = 200
"""The largest size of a terminal that is kept, since the guest tells the size."""

PENDING_MAX: Final = 64 * 1024
"""The most bytes that wait to be parsed; of more, the last `REST` are kept."""

REST: Final = 16 * 1024

SLICE: Final = 1024
"""Bytes that are parsed at once, which takes 0.3 ms; at worst, of hostile input, 25 ms."""

QUIET_S: Final = 1.0
"""Seconds of silence after which a question counts as waiting for an answer."""

RATE_S: Final = 3.0
"""Seconds over which lines are counted."""

CANCEL: Final = b"\x18"
"""Ends a control sequence whose rest was skipped (CAN)."""


class WatchedScreen:
    """The screen of a terminal in a guest, drawn in a tile. Its input is hostile, so no line is
    drawn wider than asked for."""

    def __init__(
        self, columns: int, rows: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._terminal = Terminal(*_bounded(columns, rows), scrollback=0, clock=clock)
        self._pending = bytearray()
        self._repeated = 0
        """The number of pending bytes that were written before the look began."""
        self._strips: dict[tuple[int, int], Strip] = {}
        self._base: RichStyle | None = None
        self.heard: float | None = None
        """The time of its last output, by the clock; None if none has come since the look began."""
        self.status: int | None = None
        """The exit status of the last command that has ended (OSC 133), if known."""
        self._bell = self._ended = self._answered = False
        self._counted: list[tuple[float, int]] = []
        self._cursor = (0, 0)

    # Input

    @property
    def size(self) -> tuple[int, int]:
        return self._terminal.columns, self._terminal.rows

    @property
    def title(self) -> str:
        """The title that its program has set, sanitised."""
        return self._terminal.title

    @property
    def is_behind(self) -> bool:
        """Whether some output is not parsed yet."""
        return bool(self._pending)

    def resize(self, columns: int, rows: int) -> None:
        """Follows a change of the terminal's size."""
        if _bounded(columns, rows) != self.size:
            self._terminal.resize(*_bounded(columns, rows))
            self._strips.clear()

    def take(self, data: bytes, *, replayed: bool = False, skipped: bool = False) -> None:
        """Takes output; ``skipped`` says that output before it was left out."""
        if data and not replayed:
            self.heard = now = self._clock()
            self._counted.append((now, data.count(b"\n")))
            self._answered = False
        if skipped:
            data = CANCEL + after_string(data)
        self._pending += data
        self._repeated += len(data) if replayed else 0
        if len(self._pending) > PENDING_MAX:
            rest = after_string(bytes(self._pending[-REST:]))
            # A line of its own is the likeliest place to go on from.
            self._pending = bytearray(CANCEL + rest[max(0, rest.find(b"\n")) :])
            self._repeated = 0

    def digest(self) -> None:
        """Parses a slice of the output that waits."""
        data = bytes(self._pending[:SLICE])
        if self._repeated:
            data = data[: self._repeated]
        del self._pending[: len(data)]
        self._terminal.feed(data, answered=False)
        self._terminal.take_replies()
        is_old = self._repeated > 0
        self._repeated = max(0, self._repeated - len(data))
        for event in self._terminal.take_events():
            if is_old:
                continue
            if isinstance(event, Bell):
                self._bell = True
            elif isinstance(event, CommandFinished):
                self._ended, self.status = True, event.status

    # Attention

    @property
    def wants(self) -> Wants:
        """The reason why it stands out now."""
        if self._waits_for_answer():
            return Wants.ANSWER
        if self._bell:
            return Wants.BELL
        return Wants.END if self._ended else Wants.NOTHING

    def _waits_for_answer(self) -> bool:
        now = self._clock()
        silent = self.heard is None or now - self.heard >= QUIET_S
        if self._answered or not silent or self._pending:
            return False
        cursor = self._terminal.cursor
        cells = self._terminal.cells(cursor.line)[: cursor.x]
        return is_question("".join(cells))

    def seen(self) -> None:
        """Notes that the user has seen it, so that it no longer stands out until it writes
        again."""
        self._bell = self._ended = False
        self._answered = True

    def lines_per_s(self) -> float:
        """Returns the lines that it writes per second."""
        since = self._clock() - RATE_S
        self._counted = [(when, count) for when, count in self._counted if when >= since]
        return sum(count for _, count in self._counted) / RATE_S

    # Display

    def take_changed(self) -> bool:
        """Whether the screen has changed since the last call. Output from before the look began is
        shown only when all of it is parsed: until then the screen is one of the past."""
        if self._repeated:
            return False
        damage, cursor = self._terminal.take_damage(), self._terminal.cursor
        place = (cursor.line - self._terminal.screen_line, cursor.x)
        moved = place != self._cursor
        if not (damage.all or damage.lines or moved):
            return False
        self._cursor = place
        if damage.all:
            self._strips.clear()
        else:
            changed = {number for part in damage.lines for number in part}
            self._strips = {
                key: strip for key, strip in self._strips.items() if key[0] not in changed
            }
        return True

    def strips(self, width: int, height: int, base: RichStyle) -> list[Strip]:
        """Draws the most important part of the screen, in ``height`` strips of ``width`` cells."""
        if base is not self._base:
            self._base = base
            self._strips.clear()
        terminal, cursor = self._terminal, self._terminal.cursor
        first = terminal.screen_line
        at, used = cursor.line - first, self._used()
        if terminal.is_alternate:
            at, used = 0, 0  # a picture is recognised by its top, wherever the cursor is
        top = first + first_row(terminal.rows, height, at, used)
        drawn = []
        for number in range(top, top + height):
            strip = self._strip(number, width, base)
            if number == cursor.line and cursor.visible and cursor.x < width:
                strip = reversed_at(strip, cursor.x)
            drawn.append(strip)
        return drawn

    def _used(self) -> int:
        """Returns the number of rows, from the top to the last one that has text."""
        terminal = self._terminal
        first = terminal.screen_line
        for y in range(terminal.rows, 0, -1):
            if terminal.text(first + y - 1).strip():
                return y
        return 0

    def _strip(self, number: int, width: int, base: RichStyle) -> Strip:
        key = (number, width)
        if (known := self._strips.get(key)) is not None:
            return known
        terminal = self._terminal
        runs = terminal.line(number) if number < terminal.end_line else []
        safe = [run._replace(text=_alone(run.text)) for run in runs]
        strip = line_strip(safe, width, base, lambda _: "").adjust_cell_length(width, base)
        self._strips[key] = strip
        return strip


JOINED: Final = re.compile("[\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]")
"""Characters that a terminal may join with the one before: letters of flags, and skin tones."""


NO_CELL: Final = frozenset({"Mn", "Me", "Mc", "Cc", "Cf", "Cs", "Cn"})
"""Categories of characters that take no cell of their own, or not in all terminals."""


def _alone(text: str) -> str:
    """Returns a text in which each character takes the same cells in all terminals, whatever stands
    beside it: a character that joins others would move everything right of the tile."""
    if text.isascii():
        return text
    text = text.replace(PLACEHOLDER, REPLACEMENT)
    text = JOINED.sub("  ", unicodedata.normalize("NFC", text))
    return "".join(char for char in text if unicodedata.category(char) not in NO_CELL)


def _bounded(columns: int, rows: int) -> tuple[int, int]:
    return min(max(columns, 2), COLUMNS_MAX), min(max(rows, 1), ROWS_MAX)
