"""The main and the alternate screen with their cursor and margins, and what moves the cursor.

The pending wrap is cleared where xterm clears it (its cursor.c, util.c and screen.c); except for
tabs, this agrees with DEC STD 070 in everything tested here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_vt import boxes
from quicksand_vt.boxes import Box
from quicksand_vt.cell_rows import FULL_WRAP, NO_WRAP, Row
from quicksand_vt.grid import Grid
from quicksand_vt.modes import Charsets, Cursor, SavedCursor, Tabs
from quicksand_vt.packing import Packer
from quicksand_vt.reflow import Point
from quicksand_vt.stored_lines import Scrollback
from quicksand_vt.style import Style, Styles

if TYPE_CHECKING:
    from quicksand_vt.modes import Modes
    from quicksand_vt.outbox import Allowance


class Page:
    """Both screens with their cursor and margins, and what moves the cursor.

    Rows and columns count from 0, and ends of ranges are exclusive."""

    def __init__(
        self, columns: int, height: int, scrollback: int, modes: Modes, work: Allowance
    ) -> None:
        self.modes = modes
        self.work = work
        """The cells that operations which look at each of them may still look at. Beyond it they do
        nothing: few bytes could otherwise keep the terminal busy."""
        self.styles = Styles()
        self.packer = Packer(self.styles)
        self.scrollback = Scrollback(scrollback)
        self.main = Grid(columns, height, self.packer, self.scrollback)
        self.alternate = Grid(columns, height, self.packer, None)
        self.grid = self.main
        """The screen that is shown."""
        self.cursor = Cursor()
        self.charsets = Charsets()
        self.tabs = Tabs(columns)
        self.top, self.end = 0, height
        """The top and bottom margins."""
        self.left, self.right = 0, columns
        """The left and right margins (DECSLRM)."""
        self.has_sides = False
        """There are left or right margins within the screen, which few programs set."""
        self.protects = False
        """Erasing leaves protected cells, too (SPA), not only selective erasing (DECSCA)."""
        self.left_at = Point(0, 0)
        """The cursor's position on the main screen when the alternate one was shown."""

    @property
    def columns(self) -> int:
        return self.grid.columns

    @property
    def height(self) -> int:
        return self.grid.height

    @property
    def is_alternate(self) -> bool:
        return self.grid is self.alternate

    @property
    def row(self) -> Row:
        """The cursor's row."""
        return self.grid.rows[self.cursor.y]

    @property
    def limit(self) -> int:
        """The column before which text of the cursor's row wraps."""
        return self.right if self.has_sides and self.cursor.x < self.right else self.grid.columns

    @property
    def box(self) -> Box:
        """The rectangle within the margins, which scrolls."""
        return Box(self.top, self.left, self.end, self.right)

    @property
    def is_inside(self) -> bool:
        """Whether the cursor is within the margins."""
        cursor = self.cursor
        return self.top <= cursor.y < self.end and self.left <= cursor.x < self.right

    # The cursor

    def set_style(self, style: Style) -> None:
        self.cursor.style = style
        self.cursor.blank = self.styles.blank(style)

    def change_style(self, params: str) -> None:
        """Carries out SGR; see `Sink.sgr`."""
        cursor = self.cursor
        changed = self.styles.changes.get((cursor.style, params))
        if changed is None:
            changed = self.styles.change(cursor.style, params)
        cursor.style, cursor.blank = changed

    def move_to(self, y: int, x: int) -> None:
        """CUP and the like; in origin mode, the position counts from the margins."""
        if self.modes.origin:
            self._go(min(self.top + y, self.end - 1), min(self.left + x, self.right - 1))
        else:
            self._go(min(y, self.height - 1), x)

    def move_column(self, x: int) -> None:
        if self.modes.origin:
            x = min(self.left + x, self.right - 1)
        self._go(self.cursor.y, x)

    def move_row(self, y: int) -> None:
        if self.modes.origin:
            y = min(self.top + y, self.end - 1)
        self._go(min(y, self.height - 1), self.cursor.x)

    def move_by(self, rows: int, columns: int) -> None:
        """CUU, CUD, CUF, CUB; the margins stop a cursor inside them."""
        cursor = self.cursor
        top = self.top if cursor.y >= self.top else 0
        end = self.end if cursor.y < self.end else self.height
        x = cursor.x + columns
        if self.has_sides:
            x = min(max(x, self._left_of(cursor.x)), self.limit - 1)
        self._go(min(max(cursor.y + rows, top), end - 1), x)

    def move_beyond(self, rows: int, columns: int) -> None:
        """VPR and HPR, which only the edges of the screen stop."""
        cursor = self.cursor
        self._go(min(cursor.y + rows, self.height - 1), cursor.x + columns)

    def _left_of(self, x: int) -> int:
        """Returns the column that stops a cursor that moves left from ``x``."""
        return self.left if x >= self.left else 0

    def _go(self, y: int, x: int) -> None:
        cursor = self.cursor
        cursor.y = y
        cursor.x = min(max(x, 0), self.grid.columns - 1)
        cursor.pending = False

    def carriage_return(self) -> None:
        cursor = self.cursor
        if not self.has_sides:
            cursor.x = 0
        else:
            cursor.x = self.left if self.modes.origin else self._left_of(cursor.x)
        cursor.pending = False

    def back(self, count: int = 1) -> None:
        """BS and CUB. With reverse wrap (modes 45 and 1045) it goes on in the row above: if that
        wraps into this one, or in any case, then from the top of the region to its end."""
        cursor, modes = self.cursor, self.modes
        wraps = modes.autowrap and (modes.reverse_wrap or modes.reverse_wrap_all)
        if not wraps:
            self.move_by(0, -count)
            return
        count -= cursor.pending
        stop = self._left_of(cursor.x)
        step = min(count, cursor.x - stop)
        y, x, count = cursor.y, cursor.x - step, count - step
        if modes.reverse_wrap_all and count > 0:
            top = self.top if y >= self.top else 0
            end = self.end if y < self.end else self.height
            width = self.right - self.left
            at = ((y - top) * width - count) % ((end - top) * width)
            y, x = top + at // width, self.left + at % width
        while count > 0 and y > 0 and not modes.reverse_wrap_all:
            if self.grid.rows[y - 1].wrap == NO_WRAP:
                break
            y -= 1
            step = min(count, self.right - self.left)
            x, count = self.right - step, count - step
        self._go(y, x)

    def tab(self, count: int = 1) -> None:
        """HT and CHT, up to the right margin; a pending wrap stays, as in xterm, unless mode 41
        wraps first."""
        cursor = self.cursor
        if cursor.pending and self.modes.wraps_before_tab:
            cursor.pending = False
            self.wrap()
        limit = self.limit
        for _ in range(min(count, self.columns)):
            cursor.x = min(self.tabs.after(cursor.x), limit - 1)

    def back_tab(self, count: int) -> None:
        x = self.cursor.x
        for _ in range(min(count, self.columns)):
            x = self.tabs.before(x)
        self._go(self.cursor.y, x)

    def index(self) -> None:
        """IND: moves one row down; at the bottom margin, scrolls."""
        cursor = self.cursor
        cursor.pending = False
        below = cursor.y + 1
        if below == self.end:
            if not self.has_sides:
                self.grid.scroll_up_once(self.top, below, cursor.blank)
            elif self.is_inside:
                boxes.shift(self.grid, self.box, 1, cursor.blank)
        elif below < self.grid.height:
            cursor.y = below

    def reverse_index(self) -> None:
        """RI: moves one row up; at the top margin, scrolls."""
        cursor = self.cursor
        cursor.pending = False
        if cursor.y == self.top:
            if self.is_inside:
                self.scroll_down(self.top, 1)
        elif cursor.y > 0:
            cursor.y -= 1

    def line_feed(self) -> None:
        self.index()
        if self.modes.newline:
            self.carriage_return()

    def next_line(self) -> None:
        self.index()
        self.carriage_return()

    def return_line_feed(self) -> None:
        """CR and LF at once, as most lines end."""
        if self.has_sides:
            self.carriage_return()
        else:
            self.cursor.x = 0
        self.index()

    def wrap(self, kind: int = FULL_WRAP) -> None:
        """Wraps to the next row, if there is one."""
        below = self.cursor.y + 1
        if (below == self.end or below < self.height) and not self.has_sides:
            self.row.wrap = kind
        self.index()
        self.cursor.x = self.left

    def save_cursor(self) -> None:
        cursor = self.cursor
        self.grid.saved = SavedCursor(
            x=cursor.x,
            y=cursor.y,
            pending=cursor.pending,
            style=cursor.style,
            charsets=self.charsets.state(),
            origin=self.modes.origin,
        )

    def restore_cursor(self) -> None:
        """DECRC: restores the saved cursor, or the initial one if none was saved."""
        saved = self.grid.saved
        self.modes.origin = saved.origin
        self.charsets.restore(saved.charsets)
        self.set_style(saved.style)
        self._go(min(saved.y, self.height - 1), saved.x)
        self.cursor.pending = saved.pending and self.cursor.x == self.limit - 1

    def forget_saved_cursor(self) -> None:
        self.grid.saved = SavedCursor()

    # Margins

    def set_region(self, top: int, end: int) -> None:
        """DECSTBM; ignores a region of fewer than two rows."""
        end = min(end, self.height)
        if 0 <= top < end - 1:
            self.top, self.end = top, end
            self.move_to(0, 0)

    def set_sides(self, left: int, right: int) -> None:
        """DECSLRM; ignores a region of fewer than two columns."""
        right = min(right, self.columns)
        if 0 <= left < right - 1:
            self._set_sides(left, right)
            self.move_to(0, 0)

    def _set_sides(self, left: int, right: int) -> None:
        columns = self.columns
        self.left, self.right = left, right
        self.has_sides = (left, right) != (0, columns)
        for grid in (self.main, self.alternate):
            grid.open_columns = 0 if self.has_sides else columns
        self.cursor.pending = self.cursor.pending and self.cursor.x == columns - 1

    def reset_sides(self) -> None:
        self._set_sides(0, self.columns)

    def reset_region(self) -> None:
        """Removes all margins."""
        self.top, self.end = 0, self.height
        self.reset_sides()

    def scroll_down(self, top: int, count: int) -> None:
        """Moves the rows from ``top`` to the bottom margin down."""
        blank = self.cursor.blank
        if self.has_sides:
            box = Box(top, self.left, self.end, self.right)
            boxes.shift(self.grid, box, -count, blank)
        else:
            self.grid.scroll_down(top, self.end, count, blank)
