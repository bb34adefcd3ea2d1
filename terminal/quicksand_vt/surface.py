"""The screen of a terminal as pictures see it, and where on it they are shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from quicksand_vt.graphics import USUAL_CELL, After, Graphics
from quicksand_vt.outbox import Allowance
from quicksand_vt.style import Special

if TYPE_CHECKING:
    from quicksand_vt.boxes import Box
    from quicksand_vt.cell_rows import Row
    from quicksand_vt.grid import Grid
    from quicksand_vt.terminal_state import State

CELLS_BURST: Final = 100_000
CELLS_RATE: Final = 200_000
"""Cells, at once and per second, that pictures may cover anew: thirty times a second a picture as
large as a large terminal, a tenth of a slow core. Beyond that, pictures are not shown."""

LOOKING: Final = 4
"""The number of cells that are looked at in the time of covering one."""

SCROLLING: Final = 20
"""The number of cells whose covering takes as long as going to the next row."""


class Surface:
    """The screen of a terminal, as pictures see it."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._room = Allowance(CELLS_BURST, CELLS_RATE, state.clock)
        self.clock = state.clock

    @property
    def cell(self) -> tuple[int, int]:
        """The width and height of a cell in pixels."""
        return self._state.cell_pixels or USUAL_CELL

    @property
    def size(self) -> tuple[int, int]:
        """The columns and rows of the screen."""
        return self._state.screen.columns, self._state.screen.height

    @property
    def cursor(self) -> tuple[int, int]:
        """The cursor's row and column."""
        cursor = self._state.screen.cursor
        return cursor.y, cursor.x

    @property
    def foreground(self) -> int:
        """The colour of text as ``0xRRGGBB``."""
        return self._state.colours.get(Special.FOREGROUND)

    @property
    def after_sixels(self) -> After:
        """The cursor's place after a sixel picture, by the modes."""
        modes = self._state.modes
        if modes.sixels_at_top:
            return After.TOP
        return After.BEHIND if modes.cursor_behind_sixels else After.LAST_ROW

    @property
    def answers(self) -> bool:
        """Whether a query is answered now."""
        return not self._state.replies.muted

    def reply(self, text: str, *, late: bool = False) -> None:
        """Answers, as `Replies.send`. A ``late`` answer is to a query in earlier input; the caller
        knows whether it is answered."""
        replies = self._state.replies
        muted = replies.muted
        replies.muted = muted and not late
        replies.send(text)
        replies.muted = muted

    def touch(self) -> None:
        """Has everything drawn anew: parts of pictures have changed or are forgotten."""
        for grid in self._grids:
            grid.all_dirty = True

    @property
    def _grids(self) -> tuple[Grid, Grid]:
        screen = self._state.screen
        return screen.main, screen.alternate

    # Cells

    def may_show(self, columns: int, rows: int, after: After) -> bool:
        """Takes leave to `show` a picture; returns False if pictures took too many cells lately."""
        return self._room.take(rows * (columns + (SCROLLING if _scrolls(after) else 0)))

    def show(self, columns: int, rows: int, first: int, *, after: After, erases: bool) -> None:
        """Shows a picture of so many cells at the cursor; its parts have the numbers from ``first``
        on, row by row. Parts beyond the screen are not shown, but scroll it unless ``after`` says
        otherwise. The caller has leave of `may_show`."""
        screen = self._state.screen
        cursor = screen.cursor
        scrolls = _scrolls(after)
        at_top = after is After.TOP
        x = 0 if at_top else cursor.x
        wide = min(columns, screen.columns - x)
        blank = cursor.blank if erases else None
        for y in range(rows):
            if scrolls:
                row = screen.row
            else:
                place = y if at_top else cursor.y + y
                if place >= screen.height:
                    break
                row = screen.grid.rows[place]
            begin = first + y * columns
            row.show(x, range(begin, begin + wide), blank)
            if scrolls and y < rows - 1:
                screen.index()
        if scrolls:
            self._place_cursor(x, columns, after)

    def _place_cursor(self, x: int, columns: int, after: After) -> None:
        screen = self._state.screen
        screen.cursor.x, screen.cursor.pending = x, False
        if after is not After.BEHIND:
            return
        if x + columns < screen.columns:
            screen.cursor.x = x + columns
        else:
            screen.next_line()

    def move_up(self, rows: int) -> None:
        self._state.screen.move_by(-rows, 0)

    def parts(self, box: Box) -> list[list[int]]:
        """Returns the numbers of the parts that cells of the shown screen show, row by row; 0 where
        there is none. The box is cut to the screen."""
        rows = self._state.screen.grid.rows[max(0, box.top) : max(0, box.end)]
        return [
            [style.picture for style in row.styles[max(0, box.left) : max(0, box.right)]]
            if row.pictured
            else []
            for row in rows
        ]

    def shown(self, *, everywhere: bool = False) -> Iterator[int]:
        """Yields the numbers of all parts on the shown screen, or on both; they may repeat. None if
        it was called too often lately."""
        columns, rows = self.size
        if not self._room.take(columns * rows // LOOKING):
            return
        for grid in self._grids if everywhere else (self._state.screen.grid,):
            for row in grid.rows:
                if row.pictured:
                    yield from _parts(row)


def _scrolls(after: After) -> bool:
    return after in (After.LAST_ROW, After.BEHIND)


def _parts(row: Row) -> Iterator[int]:
    found = {style.picture for style in row.styles}
    found.discard(0)
    row.pictured = bool(found)
    return iter(found)


MakeGraphics = Callable[[Surface], Graphics]
