"""Searching in what a terminal shows and has shown."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from quicksand_tui.terminal.lines import Lines, LogicalLine, Position, Span, logical_lines

MATCHES_MAX: Final = 10_000

PIECES_KEPT: Final = 64
"""Lines whose matches `Matches` remembers by their cells, not only by their number."""


def search_pattern(text: str, *, regex: bool = False) -> re.Pattern[str]:
    """What `search` looks for. Case matters if ``text`` has capitals. A regular expression that is
    none raises `re.error`."""
    flags = re.NOFLAG if any(char.isupper() for char in text) else re.IGNORECASE
    return re.compile(text if regex else re.escape(text), flags)


def search(lines: Lines, pattern: re.Pattern[str]) -> Iterator[Span]:
    """Where the pattern is found, from the oldest line to the newest, `MATCHES_MAX` times at most.
    Lines that go on in the next are looked at as one; an empty match is none."""
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
    """All places where a pattern is found in lines that do not change, however many. The search is
    done in slices (`go_on`); of each line only the number of its matches is kept."""

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
        """Rows of the lines that have matches."""
        self._before: list[int] = []
        """How many matches there are before each of them."""
        self._known: dict[int, list[Span]] = {}
        self.count = 0
        """Matches that were found so far."""
        self.is_done = False

    def go_on(self, seconds: float) -> None:
        """Search for so long, or to the end."""
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
        """The matches that have cells on a line."""
        at = bisect_right(self._found, number, key=lambda rows: rows.start) - 1
        if at < 0 or number not in self._found[at]:
            return []
        spans = self._of(at)
        first = bisect_left(spans, number, key=lambda span: span.end.line)
        return spans[first : bisect_right(spans, number, key=lambda span: span.start.line)]

    def after(self, position: Position) -> Span | None:
        """The first match that begins behind a place; behind the last one it goes on from the
        beginning."""
        at = bisect_left(self._found, position.line, key=lambda rows: rows.stop - 1)
        if at < len(self._found):
            for span in self._of(at):
                if span.start > position:
                    return span
        if not self._found:
            return None
        return self._of((at + 1) % len(self._found) if at < len(self._found) else 0)[0]

    def before(self, position: Position) -> Span | None:
        """The last match that begins before a place; before the first one it goes on from the
        end."""
        at = bisect_right(self._found, position.line, key=lambda rows: rows.start) - 1
        if at >= 0:
            for span in reversed(self._of(at)):
                if span.start < position:
                    return span
        return self._of(at - 1 if at >= 0 else -1)[-1] if self._found else None

    def rank(self, span: Span) -> int:
        """Which of all matches it is, counted from 1 from the oldest; 0 if it is none."""
        at = bisect_right(self._found, span.start.line, key=lambda rows: rows.start) - 1
        if at < 0 or span not in (spans := self._of(at)):
            return 0
        return self._before[at] + spans.index(span) + 1

    def _of(self, at: int) -> list[Span]:
        """The matches in one of the lines that have some."""
        at %= len(self._found)
        spans = self._known.get(at)
        if spans is None:
            if len(self._known) >= PIECES_KEPT:
                self._known.pop(next(iter(self._known)))
            spans = self._known[at] = list(_spans(self._lines, self._found[at], self._pattern))
        return spans
