"""Pictures as text, of kitty's images or of half cells: the way that is possible, and the lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from quicksand_driver.textual_private import driver_of
from quicksand_pixels import (
    UPPER,
    USUAL_CELL,
    Way,
    cell_at,
    choose_way_in_text,
    parse_cells,
    runs,
    tile_ids,
)
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

if TYPE_CHECKING:
    from quicksand_pixels import Rect
    from textual.app import App
    from textual.widget import Widget

    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.kit.outer_terminal import OuterTerminal


def way_of(widget: Widget, settings: Settings, terminal: OuterTerminal) -> Way:
    """Returns the way to draw pictures within a widget."""
    # A screen over the app's tints all below it, and an image's id is a colour.
    if covers(widget) > 0 or driver_of(widget.app) is None:
        return Way.HALF
    abilities = terminal.abilities
    return choose_way_in_text(
        settings.config.graphics,
        abilities.graphics,
        abilities.name,
        in_multiplexer=terminal.in_multiplexer,
        true_colours=widget.app.console.color_system == "truecolor" and not widget.app.no_color,
    )


def covers(widget: Widget) -> float:
    """Returns the share of the widget's screen, from 0 to 1, that other screens hide."""
    if not widget.is_attached:
        return 0.0
    own = widget.screen
    above = itertools.dropwhile(lambda screen: screen is not own, widget.app.screen_stack)
    return max((screen.styles.background.a for screen in list(above)[1:]), default=0.0)


def cell_size(app: App[Any], terminal: OuterTerminal) -> tuple[int, int]:
    """Returns the width and height of a cell in pixels, as far as they are known."""
    driver = driver_of(app)
    known = driver.cell_size if driver is not None else None
    return known or terminal.abilities.cell_size or USUAL_CELL


def segments(line: Sequence[bytes], beside: Style, *, ascii_only: bool) -> Iterator[Segment]:
    """Yields the segments of a line of cells, six bytes each; empty cells are beside the
    picture."""
    for run in runs(line):
        if run.upper:
            yield Segment(*_look(run.upper, run.lower, run.cells, ascii_only=ascii_only))
        else:
            yield Segment(" " * run.cells, beside)


@lru_cache(maxsize=1 << 14)
def _style(upper: bytes, lower: bytes) -> Style:
    return Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower))


def _look(upper: bytes, lower: bytes, cells: int, *, ascii_only: bool) -> tuple[str, Style]:
    if ascii_only:
        mixed = bytes((one + other) // 2 for one, other in zip(upper, lower, strict=True))
        return " " * cells, _style(mixed, mixed)
    return UPPER * cells, _style(upper, lower)


EMPTY = b""
"""A cell beside the picture."""


class CellPicture:
    """Half cells."""

    def __init__(self, width: int, *, ascii_only: bool) -> None:
        self._width = width
        self._ascii = ascii_only
        self._rows: dict[int, list[bytes]] = {}

    def take(self, data: bytes) -> list[int]:
        """Takes changed cells as the worker packs them; returns their rows."""
        changed = []
        for row, column, cells in parse_cells(data):
            line = self._rows.setdefault(row, [EMPTY] * self._width)
            line[column : column + len(cells)] = cells
            changed.append(row)
        return changed

    def line(self, y: int, beside: Style) -> Iterable[Segment] | None:
        """Returns a line; None if there is nothing of the picture."""
        row = self._rows.get(y)
        return None if row is None else segments(row, beside, ascii_only=self._ascii)


class TilePicture:
    """Placeholders, of which the terminal makes parts of images. Each is a segment of its own: so
    none is cut from its marks at the edge of a dialog."""

    def __init__(self, target: Rect, first_id: int) -> None:
        self._target = target
        self._first = first_id

    @property
    def ids(self) -> Iterator[int]:
        """Yields the ids of its images."""
        return tile_ids(self._target.width, self._target.height, self._first)

    def line(self, y: int, beside: Style) -> Iterable[Segment] | None:
        left, top, width, height = self._target
        if not top <= y < top + height:
            return None
        return [Segment(" " * left, beside), *self._cells(width, y - top, beside)]

    def _cells(self, width: int, row: int, beside: Style) -> Iterator[Segment]:
        style = Style()
        shown: tuple[int, int, int] | None = None
        for column in range(width):
            text, colour = cell_at(column, row, self._first)
            if colour != shown:
                style, shown = beside + Style(color=Color.from_rgb(*colour)), colour
            yield Segment(text, style)


GuestPicture = CellPicture | TilePicture
"""A picture that the view of a desktop can show."""
