"""Searching in what a terminal shows and has shown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from quicksand_tui.terminal.lines import Lines, Span, logical_lines

MATCHES_MAX: Final = 10_000


def search_pattern(text: str, *, regex: bool = False) -> re.Pattern[str]:
    """What `search` looks for. Case matters if ``text`` has capitals. A regular expression that is
    none raises `re.error`."""
    flags = re.NOFLAG if any(char.isupper() for char in text) else re.IGNORECASE
    return re.compile(text if regex else re.escape(text), flags)


def search(lines: Lines, pattern: re.Pattern[str]) -> Iterator[Span]:
    """Where the pattern is found, from the oldest line to the newest, `MATCHES_MAX` times at most.
    Lines that go on in the next are looked at as one; an empty match is none."""
    count = 0
    for line in logical_lines(lines):
        for match in pattern.finditer(line.text):
            if match.start() < match.end():
                yield line.span(match.start(), match.end())
                count += 1
                if count == MATCHES_MAX:
                    return
