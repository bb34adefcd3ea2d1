"""Lays out lines for another width, and places them on the screen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from quicksand_vt.cell_rows import FULL_WRAP, NO_WRAP, SHORT_WRAP
from quicksand_vt.packing import Packed, Packer, StyleRun


class Point(NamedTuple):
    """A position in a list of rows; ``x`` may be beyond the last cell."""

    row: int
    x: int


class Layout(NamedTuple):
    """Rows, and the new positions of the given points."""

    rows: list[Packed]
    points: list[Point]


def reflow(
    rows: Sequence[Packed], columns: int, points: Sequence[Point], packer: Packer, most: int
) -> Layout:
    """Lays out ``rows`` in ``columns``; wrapped rows are one line.

    Works from the end to the beginning and stops at ``most`` rows, since the scrollback would drop
    the rest anyway. Points in dropped rows end up in row 0.
    """
    pieces: list[list[Packed]] = []
    """The rows of each line, the last line first."""
    moved: dict[int, tuple[int, Point]] = {}
    """By point: the number of rows from the start of its line to the end, and its position within
    the line."""
    count, end = 0, len(rows)
    while end > 0 and count < most:
        start = _line_start(rows, end - 1, most * columns)
        inside = [n for n, point in enumerate(points) if start <= point.row < end]
        line = [rows[n] for n in range(start, end)]
        offsets = [_offset(line, points[n], start, packer) for n in inside]
        piece, begins = _lay_out(line, columns, packer)
        count += len(piece)
        pieces.append(piece)
        for n, offset in zip(inside, offsets, strict=True):
            moved[n] = (count, _place(begins, offset))
        end = start
    done = [packed for piece in reversed(pieces) for packed in piece]
    places = []
    for n in range(len(points)):
        from_end, place = moved.get(n, (len(done), Point(0, 0)))
        places.append(Point(len(done) - from_end + place.row, place.x))
    return Layout(done, places)


def _line_start(rows: Sequence[Packed], last: int, most: int) -> int:
    """Returns where the line that ends in row ``last`` begins, or at least its last ``most``
    characters."""
    start, size = last, len(rows[last].text)
    while start > 0 and rows[start - 1].wrap != NO_WRAP and size < most:
        start -= 1
        size += len(rows[start].text)
    return start


def _offset(line: Sequence[Packed], point: Point, start: int, packer: Packer) -> int:
    """Returns the number of cells of the line before the point."""
    before = line[: point.row - start]
    return sum(len(packer.cells(packed)) for packed in before) + point.x


def _place(begins: list[int], offset: int) -> Point:
    """Returns the position of an offset in the rows of a line, which begin at these offsets."""
    row = max(n for n, begin in enumerate(begins) if begin <= offset)
    return Point(row, offset - begins[row])


def _lay_out(
    line: Sequence[Packed], columns: int, packer: Packer
) -> tuple[list[Packed], list[int]]:
    """Returns the rows of one line, and the offset of each."""
    if any(packed.has_pictures for packed in line):
        # A picture is cut, not continued below: its rows belong together.
        before = [len(packer.cells(packed)) for packed in line[:-1]]
        return [packer.cut(packed, columns) for packed in line], list(accumulate(before, initial=0))
    if len(line) == 1 and line[0].is_simple and len(line[0].text) <= columns:
        return [line[0]], [0]
    if all(packed.is_simple and packed.is_plain for packed in line):
        return _lay_out_simple(line, columns)
    if len(line) == 1 and 2 * len(line[0].text) <= columns:
        return [line[0]], [0]  # no character takes more than two columns
    return _lay_out_any(line, columns, packer)


def _lay_out_any(
    line: Sequence[Packed], columns: int, packer: Packer
) -> tuple[list[Packed], list[int]]:
    """Does `_lay_out` for characters of any width and style. It counts cells without making them,
    for speed: dragging the edge of a window lays out ten thousand lines again and again."""
    texts: list[str] = []
    widths: list[int] = []
    runs: list[StyleRun] = []
    for packed in line:
        more = packer.texts(packed)
        more_widths = packer.text_widths(more)
        texts += more
        widths += more_widths
        runs += packer.style_runs(packed, sum(more_widths))
    ends, styles = list(accumulate(widths)), _Styles(runs)
    if len(line) == 1 and ends[-1] <= columns:
        return [line[0]], [0]
    rows: list[Packed] = []
    begins: list[int] = []
    at, begin, mark = 0, 0, _marks(line)
    while at < len(texts) or not rows:
        last = max(bisect_right(ends, begin + columns, at), min(at + 1, len(texts)))
        end = ends[last - 1] if last else 0
        # The last line may wrap into rows that are not given; then its flag stays.
        wrap = line[-1].wrap
        if last < len(texts):
            wrap = FULL_WRAP if end == begin + columns else SHORT_WRAP
        rows.append(packer.pack_texts(texts[at:last], styles.take(end - begin), wrap, mark))
        begins.append(begin)
        at, begin, mark = last, end, 0
    return rows, begins


class _Styles:
    """The styles of a line, consumed from its start."""

    def __init__(self, runs: list[StyleRun]) -> None:
        self._left = runs[::-1]

    def take(self, cells: int) -> list[StyleRun]:
        """Removes and returns the styles of the next cells."""
        taken: list[StyleRun] = []
        while cells > 0:
            count, record = self._left.pop()
            if count > cells:
                self._left.append((count - cells, record))
                count = cells
            cells -= count
            if taken and taken[-1][1] == record:
                count += taken.pop()[0]
            taken.append((count, record))
        return taken


def _lay_out_simple(line: Sequence[Packed], columns: int) -> tuple[list[Packed], list[int]]:
    """Does `_lay_out` for ASCII without styles, as most long output is."""
    text = "".join(packed.text for packed in line)
    begins = list(range(0, max(1, len(text)), columns))
    rows = [Packed.simple(text[at : at + columns], FULL_WRAP, 0) for at in begins]
    rows[-1] = Packed.simple(rows[-1].text, line[-1].wrap, 0)
    rows[0] = Packed.simple(rows[0].text, rows[0].wrap, _marks(line))
    return rows, begins


def _marks(line: Sequence[Packed]) -> int:
    mark = 0
    for packed in line:
        mark |= packed.mark
    return mark


def screen_top(layout: Layout, rows: int, blank_before: int, old_top: int, cursor: int) -> int:
    """Returns the row of a layout that becomes the first of a screen of ``rows``.

    ``blank_before`` is the number of blank rows that the screen had at its end; ``old_top`` is the
    row that was its first; ``cursor`` is the row of the cursor, which stays on the screen. A
    smaller screen loses blank rows first, then rows at the top; a larger one gets rows back from
    the scrollback.
    """
    end = len(layout.rows)
    blank = min(max(0, rows - (end - old_top)), blank_before)
    return max(0, min(end + blank - rows, cursor))
