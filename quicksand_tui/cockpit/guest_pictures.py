"""Pictures of a guest's screen as lines of text: half cells, or places of kitty's images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from quicksand_pixels import cell_at, parse_cells, tile_ids
from rich.color import Color
from rich.segment import Segment
from rich.style import Style

from quicksand_tui.cockpit.half_cells import segments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from quicksand_pixels import Rect

EMPTY = b""
"""A cell beside the picture."""


class GuestPicture(Protocol):
    """A picture that the view can show."""

    def line(self, y: int, beside: Style) -> Iterable[Segment] | None:
        """Returns a line; None if there is nothing of the picture."""


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
