"""Searching lines for a pattern."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Final

from quicksand_vt.numbered_lines import Lines, LogicalLine, Position, Span, logical_lines

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
