"""The visible part of a guest's screen, and its place in the terminal."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

USUAL_CELL = (10, 20)
"""Width and height in pixels of a cell in a terminal that does not tell."""

ENLARGED_MAX = 2
"""The most that a small screen is enlarged without zoom: beyond, only bytes are gained."""

ZOOM_MAX = 16.0


class Rect(NamedTuple):
    """A rectangle in cells, or in pixels of the frame where that is said."""

    x: int
    y: int
    width: int
    height: int


class Box(NamedTuple):
    """A rectangle in pixels of the frame, with fractions; the ends are exclusive."""

    left: float
    top: float
    right: float
    bottom: float


class Grid(NamedTuple):
    """An area of a terminal."""

    columns: int
    rows: int
    cell_width: int = USUAL_CELL[0]
    """The width of a cell in pixels."""
    cell_height: int = USUAL_CELL[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewport:
    """A view of a frame in an area: whole, in proportion and in the middle, or a zoomed part."""

    width: int
    """The width of the frame in pixels."""
    height: int
    grid: Grid
    zoom: float = 1.0
    """1 shows the whole frame."""
    centre: tuple[float, float] = (0.5, 0.5)
    """The middle of the view as a fraction of the frame."""

    sharp: bool = False
    """Enlarge by whole numbers only: pixels stay sharp, and cost no scaling."""

    @property
    def scale(self) -> float:
        """The pixels of the terminal for one of the frame."""
        grid = self.grid
        fitting = min(
            grid.columns * grid.cell_width / self.width,
            grid.rows * grid.cell_height / self.height,
        )
        fitting = min(fitting, ENLARGED_MAX)
        return (int(fitting) if self.sharp and fitting >= 1 else fitting) * self.zoom

    @property
    def source(self) -> Box:
        """The visible part of the frame."""
        grid = self.grid
        wide = min(self.width, grid.columns * grid.cell_width / self.scale)
        high = min(self.height, grid.rows * grid.cell_height / self.scale)
        left = min(max(0.0, self.centre[0] * self.width - wide / 2), self.width - wide)
        top = min(max(0.0, self.centre[1] * self.height - high / 2), self.height - high)
        return Box(left, top, left + wide, top + high)

    @property
    def target(self) -> Rect:
        """The cells of the area that show the frame."""
        grid, source = self.grid, self.source
        columns = round((source.right - source.left) * self.scale / grid.cell_width)
        rows = round((source.bottom - source.top) * self.scale / grid.cell_height)
        columns, rows = min(max(1, columns), grid.columns), min(max(1, rows), grid.rows)
        return Rect((grid.columns - columns) // 2, (grid.rows - rows) // 2, columns, rows)

    def zoomed(self, factor: float) -> Viewport:
        """Returns the view enlarged about its middle; never smaller than the whole."""
        source = self.source
        middle = (
            (source.left + source.right) / 2 / self.width,
            (source.top + source.bottom) / 2 / self.height,
        )
        return replace(self, zoom=min(max(1.0, self.zoom * factor), ZOOM_MAX), centre=middle)

    def moved(self, right: float, down: float) -> Viewport:
        """Returns the view moved by parts of itself: 1 is its whole width or height."""
        source = self.source
        wide, high = source.right - source.left, source.bottom - source.top
        x = (source.left + source.right) / 2 + right * wide
        y = (source.top + source.bottom) / 2 + down * high
        x = min(max(wide / 2, x), self.width - wide / 2)
        y = min(max(high / 2, y), self.height - high / 2)
        return replace(self, centre=(x / self.width, y / self.height))

    def frame_at(self, column: float, row: float) -> tuple[int, int] | None:
        """Returns the pixel of the frame at a point of the area, in cells with fractions; None
        beside the picture."""
        source, target = self.source, self.target
        across = (column - target.x) / target.width
        along = (row - target.y) / target.height
        if not (0 <= across < 1 and 0 <= along < 1):
            return None
        x = source.left + across * (source.right - source.left)
        y = source.top + along * (source.bottom - source.top)
        return min(int(x), self.width - 1), min(int(y), self.height - 1)

    def cells_of(self, damage: Rect) -> Rect:
        """Returns the cells of the target, counted from its corner, that show a part of the frame
        (in pixels) and a cell around it; without width or height if no cell shows it."""
        source, target = self.source, self.target
        across = target.width / (source.right - source.left)
        along = target.height / (source.bottom - source.top)
        left = max(0, int((damage.x - source.left) * across) - 1)
        top = max(0, int((damage.y - source.top) * along) - 1)
        right = min(target.width, int((damage.x + damage.width - source.left) * across) + 2)
        bottom = min(target.height, int((damage.y + damage.height - source.top) * along) + 2)
        return Rect(left, top, max(0, right - left), max(0, bottom - top))
