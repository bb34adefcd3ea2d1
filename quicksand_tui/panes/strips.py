"""Lines of a terminal as Textual draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from quicksand_tui.panes.colours import rich_style

if TYPE_CHECKING:
    from quicksand_tui.terminal import Run


def line_strip(
    runs: Iterable[Run], width: int, base: Style, address: Callable[[int], str]
) -> Strip:
    """A line, ``width`` cells long. ``address`` gives that of a link by its number."""
    segments, columns = [], 0
    for run in runs:
        style = base + rich_style(run.style)
        if run.style.link and (link := address(run.style.link)):
            style += Style(link=link)
        segments.append(Segment(_fitting(run), style))
        columns += run.columns
    if columns < width:
        segments.append(Segment(" " * (width - columns), base))
    elif columns > width:
        return Strip(segments, columns).crop(0, width)
    return Strip(segments, width)


def _fitting(run: Run) -> str:
    """Its text, as wide for Rich as for the guest: they know some characters differently."""
    if run.text.isascii() or cell_len(run.text) == run.columns:
        return run.text
    return set_cell_size(run.text, run.columns)


def painted(strip: Strip, marks: Iterable[tuple[range, Style]]) -> Strip:
    """``strip`` with some of its columns in other styles, whatever theirs say. The marks are in
    order and do not overlap."""
    width = strip.cell_length
    cuts: list[int] = []
    styles: list[Style | None] = []
    at = 0
    for columns, style in marks:
        start, stop = max(at, columns.start), min(columns.stop, width)
        if start < stop:
            cuts += (start, stop)
            styles += (None, style)
            at = stop
    if not cuts:
        return strip
    segments: list[Segment] = []
    for part, other in zip(strip.divide([*cuts, width]), [*styles, None], strict=True):
        if other is None:
            segments += part
        else:
            segments += [Segment(text, (own or Style()) + other) for text, own, _ in part]
    return Strip(segments, width)


def joined(marks: Iterable[tuple[range, Style]]) -> list[tuple[range, Style]]:
    """Marks of one style that touch each other, as one."""
    found: list[tuple[range, Style]] = []
    for columns, style in marks:
        if found and found[-1][0].stop == columns.start and found[-1][1] == style:
            found[-1] = (range(found[-1][0].start, columns.stop), style)
        else:
            found.append((columns, style))
    return found


def reversed_at(strip: Strip, x: int) -> Strip:
    """``strip`` with the colours of one cell changed about, also if they were already."""
    x = min(x, strip.cell_length - 1)
    under = next(iter(strip.crop(x, x + 1)), None)
    is_reversed = under is not None and under.style is not None and under.style.reverse
    return painted(strip, [(range(x, x + 1), Style(reverse=not is_reversed))])
