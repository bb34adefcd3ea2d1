"""A frozen copy of a terminal's lines, for searching and selecting."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from quicksand_tui.terminal.lines import (
    Lines,
    LogicalLine,
    Position,
    Span,
    Walk,
    line_end,
    line_start,
    logical_lines,
    stored_line,
    text_cells,
)
from quicksand_tui.terminal.rows import NO_WRAP, Run

if TYPE_CHECKING:
    from quicksand_tui.terminal.packing import Packed, Packer


MATCHES_MAX: Final = 10_000
"""How many matches `search` yields."""

PIECES_KEPT: Final = 64
"""For how many lines `Matches` caches the cells of the matches, not only their number."""


def search_pattern(text: str, *, regex: bool = False) -> re.Pattern[str]:
    """Returns the pattern for `search`; case matters if ``text`` has capitals. Raises `re.error`
    for an invalid regular expression."""
    flags = re.NOFLAG if any(char.isupper() for char in text) else re.IGNORECASE
    return re.compile(text if regex else re.escape(text), flags)


def search(lines: Lines, pattern: re.Pattern[str]) -> Iterator[Span]:
    """Yields the matches from the oldest line to the newest, at most `MATCHES_MAX`. Wrapped rows
    are searched as one line; empty matches are skipped."""
    count = 0
    for rows in logical_lines(lines):
        for span in _spans(lines, rows, pattern):
            yield span
            count += 1
            if count == MATCHES_MAX:
                return


def _spans(lines: Lines, rows: range, pattern: re.Pattern[str]) -> Iterator[Span]:
    line = LogicalLine(lines, rows.start, rows.stop - 1)
    for match in pattern.finditer(line.text):
        if match.start() < match.end():
            yield line.span(match.start(), match.end())


class Matches:
    """All matches of a pattern in unchanging lines, without a limit. `go_on` searches in slices,
    and stores only the number of matches of each line."""

    def __init__(
        self,
        lines: Lines,
        pattern: re.Pattern[str],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lines = lines
        self._pattern = pattern
        self._clock = clock
        self._todo = logical_lines(lines)
        self._found: list[range] = []
        """The rows of each line that has matches."""
        self._before: list[int] = []
        """The number of matches before each of these lines."""
        self._known: dict[int, list[Span]] = {}
        self.count = 0
        """Matches found so far."""
        self.is_done = False

    def go_on(self, seconds: float) -> None:
        """Searches for this time, or to the end."""
        deadline = self._clock() + seconds
        lines, finditer = self._lines, self._pattern.finditer
        for rows in self._todo:
            if len(rows) == 1:
                text = lines.text(rows.start)
            else:
                text = "".join(map(lines.text, rows))
            count = sum(match.start() < match.end() for match in finditer(text))
            if count:
                self._found.append(rows)
                self._before.append(self.count)
                self.count += count
            if self._clock() >= deadline:
                return
        self.is_done = True

    def on_line(self, number: int) -> list[Span]:
        """Returns the matches that have cells on a line."""
        at = bisect_right(self._found, number, key=lambda rows: rows.start) - 1
        if at < 0 or number not in self._found[at]:
            return []
        spans = self._of(at)
        first = bisect_left(spans, number, key=lambda span: span.end.line)
        return spans[first : bisect_right(spans, number, key=lambda span: span.start.line)]

    def after(self, position: Position) -> Span | None:
        """Returns the first match that begins after a position, continuing from the beginning;
        None if there is no match at all."""
        at = bisect_left(self._found, position.line, key=lambda rows: rows.stop - 1)
        if at < len(self._found):
            for span in self._of(at):
                if span.start > position:
                    return span
        if not self._found:
            return None
        return self._of((at + 1) % len(self._found) if at < len(self._found) else 0)[0]

    def before(self, position: Position) -> Span | None:
        """Returns the last match that begins before a position, continuing from the end; None if
        there is no match at all."""
        at = bisect_right(self._found, position.line, key=lambda rows: rows.start) - 1
        if at >= 0:
            for span in reversed(self._of(at)):
                if span.start < position:
                    return span
        return self._of(at - 1 if at >= 0 else -1)[-1] if self._found else None

    def rank(self, span: Span) -> int:
        """Returns a match's number, counted from 1 at the oldest; 0 if it is not a match."""
        at = bisect_right(self._found, span.start.line, key=lambda rows: rows.start) - 1
        if at < 0 or span not in (spans := self._of(at)):
            return 0
        return self._before[at] + spans.index(span) + 1

    def _of(self, at: int) -> list[Span]:
        """Returns the matches in line ``at`` of those that have some."""
        at %= len(self._found)
        spans = self._known.get(at)
        if spans is None:
            if len(self._known) >= PIECES_KEPT:
                self._known.pop(next(iter(self._known)))
            spans = self._known[at] = list(_spans(self._lines, self._found[at], self._pattern))
        return spans


WORD_MAX: Final = 4096
"""How many characters to either side are searched for the ends of a word."""


def selected_text(lines: Lines, span: Span) -> str:
    """Returns the text of a span. Wrapped rows are joined; blanks at the end of lines are
    dropped."""
    start, end = span
    pieces: list[str] = []
    for number in range(max(start.line, lines.first_line), min(end.line + 1, lines.end_line)):
        if start.line < number < end.line:
            pieces.append(lines.text(number))
        else:
            cells = text_cells(lines, number)
            begin = start.x if number == start.line else 0
            stop = end.x if number == end.line else len(cells)
            pieces.append("".join(cells[begin:stop]))
        if number < end.line and not lines.is_wrapped(number):
            pieces.append("\n")
    return "".join(pieces)


def block_text(lines: Lines, corner: Position, other: Position) -> str:
    """Returns the text of the rectangle between two corners, which it includes."""
    left, right = sorted((corner.x, other.x))
    top, bottom = sorted((corner.line, other.line))
    rows = range(max(top, lines.first_line), min(bottom + 1, lines.end_line))
    return "\n".join("".join(lines.cells(n)[left : right + 1]).rstrip(" ") for n in rows)


def line_at(lines: Lines, position: Position) -> Span:
    """Returns the whole line at a position, with all its wrapped rows."""
    first, last = line_start(lines, position.line), line_end(lines, position.line)
    return Span(Position(first, 0), Position(last, lines.columns))


def word_at(lines: Lines, position: Position) -> Span:
    """Returns the word at a position, across wrapped rows; or a run of blanks; or a single
    character that is in no word."""
    start, end = Walk(lines, position), Walk(lines, position)
    kind = start.kind
    begin, stop = start.position, end.end
    if kind == "other":
        return Span(begin, stop)
    for _ in range(WORD_MAX):
        if not start.back() or start.broke or start.kind != kind:
            break
        begin = start.position
    for _ in range(WORD_MAX):
        if not end.forward() or end.broke or end.kind != kind:
            break
        stop = end.end
    return Span(begin, stop)


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
