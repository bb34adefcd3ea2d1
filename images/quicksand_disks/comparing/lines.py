"""The lines that differ between two texts (E. Myers, "An O(ND) Difference Algorithm", 1986).

Guests wrote the texts, so the work is bounded: `difflib` takes minutes for some.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

EFFORT = 3_000_000
"""The most steps for one pair of texts, which take about a second. If they do not suffice, all
lines between the common beginning and the common end count as replaced."""

EFFORT_IN_ALL = 20 * EFFORT
"""Steps for many pairs together, such as those of a whole disk."""

CONTEXT = 3
"""Equal lines that a hunk shows on each side of a change, as diff(1) does."""

_LINE = re.compile(rb"[^\n]*\n|[^\n]+")


class Steps:
    """The steps that are left for many pairs of texts."""

    def __init__(self, left: int = EFFORT_IN_ALL) -> None:
        self.left = left


class Region(NamedTuple):
    """Lines ``a`` to ``a_end`` of the first text are replaced by ``b`` to ``b_end`` of the second,
    both ends exclusive."""

    a: int
    a_end: int
    b: int
    b_end: int


class Hunk(NamedTuple):
    """A piece of a unified diff."""

    a: int
    """The number of the first line in the first text, from 0."""
    a_count: int
    b: int
    b_count: int
    lines: tuple[tuple[str, bytes], ...]
    """" ", "-" or "+", and the line with its line feed."""

    @property
    def head(self) -> str:
        return f"@@ -{_span(self.a, self.a_count)} +{_span(self.b, self.b_count)} @@"


def _span(first: int, count: int) -> str:
    # An empty range names the line before it.
    number = first + 1 if count else first
    return str(number) if count == 1 else f"{number},{count}"


def split(text: bytes) -> list[bytes]:
    """Return the lines of a text with their line feeds."""
    return _LINE.findall(text)


def compare_lines(
    a: Sequence[bytes],
    b: Sequence[bytes],
    check: Callable[[], None] = lambda: None,
    steps: Steps | None = None,
) -> list[Region]:
    """Return the differing regions, ascending. ``check`` is called now and then, and may raise;
    ``steps`` are shared by many pairs."""
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    tail = 0
    while tail < min(len(a), len(b)) - start and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    a_end, b_end = len(a) - tail, len(b) - tail
    if start == a_end and start == b_end:
        return []
    if start in (a_end, b_end):
        return [Region(start, a_end, start, b_end)]
    # Numbers compare faster than lines.
    numbers: dict[bytes, int] = {}
    here, there = (
        [numbers.setdefault(line, len(numbers)) for line in lines[start:end]]
        for lines, end in ((a, a_end), (b, b_end))
    )
    path = _shortest(here, there, check, steps or Steps(EFFORT))
    if path is None:
        return [Region(start, a_end, start, b_end)]
    return [Region(*(number + start for number in region)) for region in _regions(path)]


def _shortest(
    a: Sequence[int], b: Sequence[int], check: Callable[[], None], steps: Steps
) -> list[tuple[int, int, int, int]] | None:
    """Return the single edits (from x, y to x, y) of a shortest edit script, ascending; None if it
    takes too many steps."""
    size_a, size_b = len(a), len(b)
    least = steps.left - EFFORT
    furthest = {1: 0}
    passed: list[dict[int, int]] = []
    for edits in range(size_a + size_b + 1):
        check()
        passed.append({k: furthest[k] for k in range(-edits - 1, edits + 2) if k in furthest})
        steps.left -= 2 * edits + 3
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            y = first = x - k
            while x < size_a and y < size_b and a[x] == b[y]:
                x, y = x + 1, y + 1
            steps.left -= y - first
            furthest[k] = x
            if x >= size_a and y >= size_b:
                return _way_back(passed, size_a, size_b)
        if steps.left < max(0, least):
            return None
    raise AssertionError


def _way_back(passed: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int, int, int]]:
    edits = []
    for number in range(len(passed) - 1, 0, -1):
        furthest, k = passed[number], x - y
        down = k == -number or (k != number and furthest[k - 1] < furthest[k + 1])
        before = k + 1 if down else k - 1
        from_x = furthest[before]
        from_y = from_x - before
        edits.append((from_x, from_y, from_x + (not down), from_y + down))
        x, y = from_x, from_y
    return edits[::-1]


def _regions(edits: list[tuple[int, int, int, int]]) -> Iterator[Region]:
    """Join edits that touch."""
    region: Region | None = None
    for x, y, x_end, y_end in edits:
        if region is not None and (region.a_end, region.b_end) == (x, y):
            region = region._replace(a_end=x_end, b_end=y_end)
            continue
        if region is not None:
            yield region
        region = Region(x, x_end, y, y_end)
    if region is not None:
        yield region


def hunks(
    a: Sequence[bytes], b: Sequence[bytes], regions: Sequence[Region], context: int = CONTEXT
) -> Iterator[Hunk]:
    """Yield the hunks of a unified diff; regions that are near each other share one."""
    at = 0
    while at < len(regions):
        last = at
        while last + 1 < len(regions) and regions[last + 1].a - regions[last].a_end <= 2 * context:
            last += 1
        yield _hunk(a, b, regions[at : last + 1], context)
        at = last + 1


def _hunk(a: Sequence[bytes], b: Sequence[bytes], near: Sequence[Region], context: int) -> Hunk:
    before = min(context, near[0].a)
    first_a, first_b = near[0].a - before, near[0].b - before
    lines: list[tuple[str, bytes]] = []
    at = first_a
    for region in near:
        lines += [(" ", line) for line in a[at : region.a]]
        lines += [("-", line) for line in a[region.a : region.a_end]]
        lines += [("+", line) for line in b[region.b : region.b_end]]
        at = region.a_end
    end = min(len(a), at + context)
    lines += [(" ", line) for line in a[at:end]]
    count_b = near[-1].b_end + (end - at) - first_b
    return Hunk(first_a, end - first_a, first_b, count_b, tuple(lines))
