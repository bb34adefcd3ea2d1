"""The times when lines of a guest's console were written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_STAMP = re.compile(r"\[ *(\d{1,9}\.\d{6})\]")
"""The beginning of Linux's own lines: seconds since it has booted."""


def timed(
    lines: Sequence[str], made: float, booted: float | None, now: float
) -> Iterator[tuple[float, str]]:
    """Yields lines with the Unix times at which they were written. A line without a stamp of the
    kernel's has the time of the line before. ``made`` is the time when the sandbox was made:
    nothing is older (a guest of a template has booted before). ``booted`` is the time of its
    guest's boot, if known."""
    at = made
    for line in lines:
        found = _STAMP.match(line)
        if found is not None and booted is not None:
            at = min(max(at, booted + float(found[1])), now)
        yield at, line
