"""Draws the rows of a pane: turns a guest's styles into Rich's, its lines into Textual's strips."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING

from quicksand_pixels import PLACEHOLDER
from quicksand_vt import (
    DEFAULT_COLOUR,
    RGB,
    VS16,
    Attribute,
    CursorShape,
    Style,
    Underline,
    clusters_in,
    counted,
    is_disputed,
)
from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.cache import LRUCache
from textual.strip import Strip

from quicksand_panes.copy_mode import columns_of
from quicksand_panes.guest_terminal import LinkState

if TYPE_CHECKING:
    from quicksand_vt import Run
    from textual.widget import Widget

    from quicksand_panes.copy_mode import CopyMode
    from quicksand_panes.gestures import Copying
    from quicksand_panes.messages import Shown


REPLACEMENT = "\ufffd"

STYLES_MAX = 4096
"""The most converted styles in the cache, which bounds the memory that a guest can fill."""


@lru_cache(maxsize=STYLES_MAX)
def rich_style(style: Style) -> RichStyle:
    """Converts a style, without its link: the caller adds the address."""
    attributes = style.attributes
    return RichStyle(
        color=_colour(style.fg),
        bgcolor=_colour(style.bg),
        bold=_has(attributes, Attribute.BOLD),
        dim=_has(attributes, Attribute.DIM),
        italic=_has(attributes, Attribute.ITALIC),
        blink=_has(attributes, Attribute.BLINK),
        reverse=_has(attributes, Attribute.REVERSE),
        conceal=_has(attributes, Attribute.HIDDEN),
        strike=_has(attributes, Attribute.STRIKE),
        overline=_has(attributes, Attribute.OVERLINE),
        underline=True if style.underline not in (Underline.NONE, Underline.DOUBLE) else None,
        underline2=True if style.underline == Underline.DOUBLE else None,
    )


def _has(attributes: int, attribute: Attribute) -> bool | None:
    """Returns None, Rich's word for unset, instead of False."""
    return True if attributes & attribute else None


@lru_cache(maxsize=STYLES_MAX)
def _colour(colour: int) -> Color | None:
    if colour == DEFAULT_COLOUR:
        return None
    if colour & RGB:
        return Color.from_rgb(colour >> 16 & 255, colour >> 8 & 255, colour & 255)
    return Color.from_ansi(colour)


Pictured = Callable[["Run", RichStyle], list[Segment] | None]
"""Draws cells that show parts of pictures; the second argument is the style of their background."""


def line_strip(
    runs: Iterable[Run],
    width: int,
    base: RichStyle,
    address: Callable[[int], str],
    pictured: Pictured | None = None,
) -> Strip:
    """Draws a line of ``width`` cells. ``address`` returns a link's address by its number."""
    segments: list[Segment] = []
    columns = 0
    for run in runs:
        if run.style.picture:
            plain = run._replace(style=run.style._replace(picture=0))
            behind = base + rich_style(Style(bg=run.style.bg))
            if pictured is not None and (drawn := pictured(run, behind)) is not None:
                segments += drawn
                columns += run.columns
                continue
            run = plain  # noqa: PLW2901
        style = base + rich_style(run.style)
        if run.style.link and (link := address(run.style.link)):
            style += RichStyle(link=link)
        segments.append(Segment(_fitting(run), style))
        columns += run.columns
    if columns < width:
        segments.append(Segment(" " * (width - columns), base))
    elif columns > width:
        return Strip(segments, columns).crop(0, width)
    return Strip(segments, width)


def _fitting(run: Run) -> str:
    """Returns the text in the guest's width, which may differ from Rich's and the terminal's.
    Blanks follow characters that the terminal joins and the guest has counted one by one, such as
    an emoji and its skin tone; an emoji that is narrow for the guest is drawn as a symbol."""
    if run.text.isascii():
        return run.text
    if PLACEHOLDER in run.text:  # with which it could show pictures of others
        run = run._replace(text=run.text.replace(PLACEHOLDER, REPLACEMENT))
    if not is_disputed(run.text):
        same = cell_len(run.text) == run.columns
        return run.text if same else set_cell_size(run.text, run.columns)
    for joined in (False, True):
        if counted(run.text, joined=joined) == run.columns:
            units = clusters_in(run.text)
            return "".join(_sized(unit, counted(unit, joined=joined)) for unit in units)
    return set_cell_size(run.text, run.columns)


def _sized(unit: str, columns: int) -> str:
    """Returns a character as it is drawn in so many columns."""
    width = cell_len(unit)
    if width > columns:
        unit = unit.replace(VS16, "")
        unit = unit if cell_len(unit) <= columns else unit[0]
        width = cell_len(unit)
    return unit + " " * (columns - width) if width <= columns else set_cell_size(unit, columns)


def painted(strip: Strip, marks: Iterable[tuple[range, RichStyle]]) -> Strip:
    """Returns ``strip`` with some columns in other styles. The marks are in order, without
    overlap."""
    width = strip.cell_length
    cuts: list[int] = []
    styles: list[RichStyle | None] = []
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
            segments += [Segment(text, (own or RichStyle()) + other) for text, own, _ in part]
    return Strip(segments, width)


def joined(marks: Iterable[tuple[range, RichStyle]]) -> list[tuple[range, RichStyle]]:
    """Joins adjacent marks of one style."""
    done: list[tuple[range, RichStyle]] = []
    for columns, style in marks:
        if done and done[-1][0].stop == columns.start and done[-1][1] == style:
            done[-1] = (range(done[-1][0].start, columns.stop), style)
        else:
            done.append((columns, style))
    return done


def reversed_at(strip: Strip, x: int) -> Strip:
    """Returns ``strip`` with the colours of one cell swapped, or swapped back."""
    x = min(x, strip.cell_length - 1)
    under = next(iter(strip.crop(x, x + 1)), None)
    is_reversed = under is not None and under.style is not None and under.style.reverse
    return painted(strip, [(range(x, x + 1), RichStyle(reverse=not is_reversed))])


STRIPS_MAX = 1024

MESSAGE_ROWS = 6
"""The most rows of a message, which may hold a guest's words."""

NOT_REVERSED = RichStyle(reverse=False)
UNDERLINED = RichStyle(underline=True)


class Picture:
    """Draws the rows of a pane, with a cache of unchanged lines."""

    def __init__(self, pane: Widget, shown: Shown, copying: Copying, pictured: Pictured) -> None:
        self._pictured = pictured
        self._pane = pane
        self._shown = shown
        self._copying = copying
        self._strips: LRUCache[int, Strip] = LRUCache(STRIPS_MAX)
        """Drawn lines, by their numbers."""
        self._redrawn = shown.redrawn
        """The `Shown.redrawn` for which they are drawn."""
        self._base: RichStyle | None = None
        """The pane's own style: computing it takes longer than drawing a line."""

    def forget(self, numbers: Iterable[int]) -> None:
        """Drops lines that have changed."""
        for number in numbers:
            self._strips.discard(number)

    def row(self, y: int) -> Strip:
        """Draws row ``y`` of the pane."""
        shown = self._shown
        if self._redrawn != shown.redrawn:
            self._redrawn = shown.redrawn
            self._strips.clear()
            self._base = None
        number = shown.top + y
        if shown.copy_mode is not None:
            last = y == self._pane.size.height - 1
            return self._copy_row(shown.copy_mode, number, last=last)
        cursor = shown.terminal.cursor
        is_open = shown.status.state is LinkState.OPEN
        if not is_open and y < len(said := self._message()):
            return self._said(said[y])
        strip = self._marked_line(number)
        if is_open and cursor.visible and cursor.line == number:
            return self._with_cursor(strip, cursor.x, cursor.shape)
        return strip

    def _marked_line(self, number: int) -> Strip:
        found = self._strips.get(number)
        if found is not None:
            return found
        strip = self._line(number)
        if (highlight := self._copying.highlight) is not None:
            selected = highlight.selection.columns(number)
            strip = painted(strip, [(selected, self._style("pane--selection"))])
        self._strips.set(number, strip)
        return strip

    def _line(self, number: int) -> Strip:
        if self._base is None:
            self._base = self._pane.rich_style
        width, link = self._pane.size.width, self._shown.terminal.link
        runs = self._shown.lines.line(number)
        return line_strip(runs, width, self._base, link, self._pictured)

    def _copy_row(self, mode: CopyMode, number: int, *, last: bool) -> Strip:
        """Draws a row in copy mode, with selection, matches and cursor."""
        if last and (bar := mode.bar):
            return self._bar(bar, typed=mode.prompt is not None)
        strip = self._line(number)
        if mode.selection is not None:
            selected = mode.selection.columns(number)
            strip = painted(strip, [(selected, self._style("pane--selection"))])
        if matches := mode.matches_on(number):
            match, found = self._style("pane--match"), self._style("pane--found")
            marks = [
                (
                    columns_of(span, number, mode.lines.columns),
                    found if span.start == mode.cursor else match,
                )
                for span in matches
            ]
            strip = painted(strip, joined(marks))
        return reversed_at(strip, mode.cursor.x) if mode.cursor.line == number else strip

    def _bar(self, text: str, *, typed: bool) -> Strip:
        width = self._pane.size.width
        style = self._pane.get_component_rich_style("pane--bar")
        # A long prompt shows its end.
        while typed and cell_len(text) >= width > 1:
            text = text[1:]
        strip = Strip([Segment(text, style)]).adjust_cell_length(width, style)
        return self._with_cursor(strip, cell_len(text)) if typed else strip

    def _style(self, kind: str) -> RichStyle:
        return self._pane.get_component_rich_style(kind) + NOT_REVERSED

    def _with_cursor(self, strip: Strip, x: int, shape: CursorShape = CursorShape.BLOCK) -> Strip:
        x = min(x, self._pane.size.width - 1)
        if self._pane.has_focus and shape is CursorShape.BLOCK:
            return reversed_at(strip, x)
        return painted(strip, [(range(x, x + 1), UNDERLINED)])

    def _message(self) -> list[str]:
        """Returns the lines in place of the first rows: why no program is here, and which key goes
        on."""
        status, width = self._shown.status, self._pane.size.width - 2
        text = status.text or f"{status.state.value}…"
        return textwrap.wrap(text, max(1, width), max_lines=MESSAGE_ROWS, placeholder=" …")

    def _said(self, text: str) -> Strip:
        pane = self._pane
        style = pane.get_component_rich_style("pane--message")
        return Strip([Segment(f" {text} ", style)]).adjust_cell_length(
            pane.size.width, pane.rich_style
        )
