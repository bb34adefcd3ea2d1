"""A line that is the first one of a box and the last one of the box above."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip

from quicksand_tui.model.text import clip, plain
from quicksand_tui.views.main_layout import NO_EDGE

if TYPE_CHECKING:
    from textual.widget import Widget

    from quicksand_tui.views.main_layout import Edge

WORDS_MIN = 12
"""Cells below which the words of the box above are left out."""
AROUND = 4
"""Cells around the words: a blank at each side, and a dash."""
DASHES = "─━-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """The way in which the first line of a box meets the last one of another."""

    edge: Edge = NO_EDGE
    above: Widget | None = None
    """The box above, if it shares the line."""
    words: str = ""
    """The words at the right end of the line."""
    urgent: bool = False
    """The words go first, and the title has the rest of the line."""


def joined_line(line: Strip, join: Join, *, ascii_only: bool) -> Strip:
    """Returns ``line``, the first line of a box's frame, as it is drawn where it meets another."""
    edge, words = join.edge, join.words
    left, dash, right = edge.line(ascii_only=ascii_only)
    width = line.cell_length
    if width < 4:
        return line
    style = words_style = next(iter(line)).style or Style.null()
    if join.above is not None:
        above_style, words_style = _styles_of(join.above)
        style = above_style if edge.above_lit else style
    inner = [
        Segment(dash * len(text), style) if text.strip(DASHES) == "" else Segment(text, own)
        for text, own, _ in line.crop(1, width - 1)
    ]
    middle = Strip(inner)
    free = cell_len(inner[-1].text) if inner and inner[-1].text.strip(dash) == "" else 0
    if join.urgent:
        free = max(free, min(width * 3 // 5, cell_len(words) + AROUND))
    shown = _fitting(words, free - AROUND)
    if shown:
        shown = plain(shown) if ascii_only else shown
        kept = middle.cell_length - cell_len(shown) - AROUND + 1
        tail = [Segment(f" {shown} ", words_style), Segment(dash, style)]
        middle = Strip([*middle.crop(0, kept), *tail])
    return Strip([Segment(left, style), *middle, Segment(right, style)], width)


def _styles_of(box: Widget) -> tuple[Style, Style]:
    """Returns the styles of the last line of a box's frame and of the words in it, as the app's
    filters leave them."""
    width, height = box.outer_size
    drawn = box.render_lines(Region(0, height - 1, width, 1)) if width and height else []
    segments = list(drawn[0]) if drawn else []
    if not segments:
        return Style.null(), Style.null()
    line = segments[0].style or Style.null()
    words = (one.style for one in segments[1:-1] if one.text.strip(f" {DASHES}"))
    return line, next(words, None) or line


def _fitting(words: str, room: int) -> str:
    """Returns as many of the parts of ``words`` as fit, whole if there are several."""
    if room < WORDS_MIN and cell_len(words) > room:
        return ""
    parts = words.split(" · ")
    while len(parts) > 1 and cell_len(" · ".join(parts)) > room:
        parts.pop()
    return clip(" · ".join(parts), room)
