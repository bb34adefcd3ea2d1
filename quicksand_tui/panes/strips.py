"""Lines of a terminal as Textual draws them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from quicksand_tui.panes.colours import rich_style
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
    return Strip(segments, columns).adjust_cell_length(width, base)


def _fitting(run: Run) -> str:
    """Its text, as wide for Rich as for the guest: they know some characters differently."""
    if run.text.isascii() or cell_len(run.text) == run.columns:
        return run.text
    return set_cell_size(run.text, run.columns)


def painted(strip: Strip, columns: range, style: Style) -> Strip:
    """``strip`` with some of its cells in another style, whatever theirs says."""
    width = strip.cell_length
    start, stop = max(0, columns.start), min(columns.stop, width)
    if start >= stop:
        return strip
    cells = [Segment(text, (own or Style()) + style) for text, own, _ in strip.crop(start, stop)]
    return Strip.join([strip.crop(0, start), Strip(cells, stop - start), strip.crop(stop, width)])


def reversed_at(strip: Strip, x: int) -> Strip:
    """``strip`` with the colours of one cell changed about, also if they were already."""
    x = min(x, strip.cell_length - 1)
    under = next(iter(strip.crop(x, x + 1)), None)
    is_reversed = under is not None and under.style is not None and under.style.reverse
    return painted(strip, range(x, x + 1), Style(reverse=not is_reversed))
