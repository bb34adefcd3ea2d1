"""The main and the alternate screen with their cursor, and the operations of control sequences.

The pending wrap is cleared where xterm clears it (its cursor.c, util.c and screen.c); except for
tabs, this agrees with DEC STD 070 in everything tested here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.terminal.grid import Grid
from quicksand_tui.terminal.lines import Scrollback
from quicksand_tui.terminal.modes import Charsets, Cursor, SavedCursor, Tabs
from quicksand_tui.terminal.packing import Packed, Packer
from quicksand_tui.terminal.reflow import Layout, Point, reflow, screen_top
from quicksand_tui.terminal.rows import FULL_WRAP, Mark, Row
from quicksand_tui.terminal.style import PLAIN, Style, Styles

if TYPE_CHECKING:
    from quicksand_tui.terminal.modes import Modes


class Screen:
    """Both screens. Rows and columns count from 0, and ends of ranges are exclusive."""

    def __init__(self, columns: int, height: int, scrollback: int, modes: Modes) -> None:
        self.modes = modes
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
        """The scroll region."""
        self._left = Point(0, 0)
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
        """CUP and the like; in origin mode, ``y`` counts from the top of the scroll region."""
        top, end = (self.top, self.end) if self.modes.origin else (0, self.height)
        self._go(min(max(top + y, top), end - 1), x)

    def move_column(self, x: int) -> None:
        self._go(self.cursor.y, x)

    def move_row(self, y: int) -> None:
        self.move_to(y, self.cursor.x)

    def move_by(self, rows: int, columns: int) -> None:
        """CUU, CUD, CUF, CUB; the margins of the scroll region stop a cursor inside it."""
        cursor = self.cursor
        top = self.top if cursor.y >= self.top else 0
        end = self.end if cursor.y < self.end else self.height
        self._go(min(max(cursor.y + rows, top), end - 1), cursor.x + columns)

    def _go(self, y: int, x: int) -> None:
        cursor = self.cursor
        cursor.y = y
        cursor.x = min(max(x, 0), self.grid.columns - 1)
        cursor.pending = False

    def carriage_return(self) -> None:
        self.cursor.x = 0
        self.cursor.pending = False

    def backspace(self) -> None:
        self.move_by(0, -1)

    def tab(self, count: int = 1) -> None:
        """HT and CHT; a pending wrap stays, as in xterm."""
        for _ in range(min(count, self.columns)):
            self.cursor.x = self.tabs.after(self.cursor.x)

    def back_tab(self, count: int) -> None:
        x = self.cursor.x
        for _ in range(min(count, self.columns)):
            x = self.tabs.before(x)
        self.move_column(x)

    def index(self) -> None:
        """IND: moves one row down; at the end of the scroll region, scrolls."""
        cursor = self.cursor
        cursor.pending = False
        below = cursor.y + 1
        if below == self.end:
            self.grid.scroll_up_once(self.top, below, cursor.blank)
        elif below < self.grid.height:
            cursor.y = below

    def reverse_index(self) -> None:
        """RI: moves one row up; at the top of the scroll region, scrolls."""
        cursor = self.cursor
        cursor.pending = False
        if cursor.y == self.top:
            self.grid.scroll_down(self.top, self.end, 1, cursor.blank)
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
        self.cursor.x = 0
        self.index()

    def wrap(self, kind: int = FULL_WRAP) -> None:
        """Wraps to the next row, if there is one."""
        below = self.cursor.y + 1
        if below == self.end or below < self.height:
            self.row.wrap = kind
        self.index()
        self.cursor.x = 0

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
        self.cursor.pending = saved.pending and self.cursor.x == self.columns - 1

    def forget_saved_cursor(self) -> None:
        self.grid.saved = SavedCursor()

    # Erasing, inserting, deleting

    def erase_in_line(self, kind: int) -> None:
        """EL: 0 from the cursor, 1 up to it, 2 all."""
        cursor, columns = self.cursor, self.columns
        ranges = {0: (cursor.x, columns), 1: (0, cursor.x + 1), 2: (0, columns)}
        if kind in ranges:
            self.row.erase(*ranges[kind], cursor.blank)
            cursor.pending = False

    def erase_in_display(self, kind: int) -> None:
        """ED: 0 from the cursor, 1 up to it, 2 all, 3 the scrollback."""
        cursor, grid = self.cursor, self.grid
        if kind == 0 and cursor.x > 0:
            self.erase_in_line(0)
            grid.clear(cursor.y + 1, grid.height, cursor.blank)
        elif kind == 0:
            grid.clear(cursor.y, grid.height, cursor.blank)
        elif kind == 1:
            self.erase_in_line(1)
            grid.clear(0, cursor.y, cursor.blank)
        elif kind == 2:
            grid.clear(0, grid.height, cursor.blank)
            cursor.pending = False
        elif kind == 3:
            self.scrollback.clear()
            grid.all_dirty = True

    def erase_characters(self, count: int) -> None:
        """ECH."""
        cursor = self.cursor
        self.row.erase(cursor.x, min(cursor.x + count, self.columns), cursor.blank)
        cursor.pending = False

    def insert_characters(self, count: int) -> None:
        """ICH."""
        self.row.insert(self.cursor.x, count, self.cursor.blank)
        self.cursor.pending = False

    def delete_characters(self, count: int) -> None:
        """DCH."""
        self.row.delete(self.cursor.x, count, self.cursor.blank)
        self.cursor.pending = False

    def insert_lines(self, count: int) -> None:
        """IL; does nothing outside the scroll region."""
        cursor = self.cursor
        if self.top <= cursor.y < self.end:
            self.grid.scroll_down(cursor.y, self.end, count, cursor.blank)
            self.carriage_return()

    def delete_lines(self, count: int) -> None:
        """DL; does nothing outside the scroll region. Deleted lines never go to the scrollback."""
        cursor = self.cursor
        if self.top <= cursor.y < self.end:
            self.grid.delete(cursor.y, self.end, count, cursor.blank)
            self.carriage_return()

    def scroll(self, count: int) -> None:
        """SU, or SD if negative."""
        if count > 0:
            self.grid.scroll_up(self.top, self.end, count, self.cursor.blank)
        else:
            self.grid.scroll_down(self.top, self.end, -count, self.cursor.blank)

    def set_region(self, top: int, end: int) -> None:
        """DECSTBM; ignores a region of fewer than two rows."""
        end = min(end, self.height)
        if 0 <= top < end - 1:
            self.top, self.end = top, end
            self.move_to(0, 0)

    def reset_region(self) -> None:
        self.top, self.end = 0, self.height

    def align(self) -> None:
        """DECALN: fills the screen with E."""
        self.reset_region()
        self.modes.origin = False
        self.set_style(PLAIN)
        self.grid.fill("E")
        self._go(0, 0)

    def mark(self, mark: Mark) -> None:
        """Marks the cursor's row (OSC 133)."""
        self.row.mark |= mark

    # The alternate screen

    def show_alternate(self, *, clear: bool) -> None:
        """Sets modes 47, 1047 and 1049; the cursor stays."""
        if not self.is_alternate:
            self._left = Point(self.cursor.y, self.cursor.x + self.cursor.pending)
            self.grid = self.alternate
            self.grid.all_dirty = True
        if clear:
            self.grid.clear(0, self.height, self.cursor.blank)

    def show_main(self, *, clear: bool) -> None:
        """Resets modes 47, 1047 and 1049."""
        if not self.is_alternate:
            return
        if clear:
            self.grid.clear(0, self.height, self.cursor.blank)
        self.grid = self.main
        self.grid.all_dirty = True

    # Size

    def resize(self, columns: int, height: int) -> None:
        """Lays out the main screen and its scrollback anew; cuts or fills the alternate one."""
        cursor = self.cursor
        if self.is_alternate:
            self._resize_main(columns, height, self._left)
            gone = self.alternate.resize(columns, height, cursor.y)
            self._go(cursor.y - gone, cursor.x)
        else:
            moved = self._resize_main(columns, height, Point(cursor.y, cursor.x + cursor.pending))
            self.alternate.resize(columns, height, 0)
            self._go(moved.row, moved.x)
            cursor.pending = moved.x == columns
        self.tabs.resize(columns)
        self.reset_region()

    def _resize_main(self, columns: int, height: int, cursor: Point) -> Point:
        """Resizes the main screen, and returns the cursor's new position."""
        main, history = self.main, list(self.scrollback)
        saved = main.saved
        end = max(main.content_end(), cursor.row + 1)
        rows = history + [Packed(*self.packer.pack(row)) for row in main.rows[:end]]
        top = len(history)
        places = [
            Point(top, 0),
            Point(top + cursor.row, cursor.x),
            Point(top + min(saved.y, end - 1), saved.x + saved.pending),
        ]
        if columns != main.columns:
            most = self.scrollback.limit + max(height, main.height)
            layout = reflow(rows, columns, places, self.packer, most)
        else:
            layout = Layout(rows, places)
        old_top, at, saved_at = layout.points
        first = screen_top(layout, height, main.height - end, old_top.row, at.row)
        self.scrollback.replace(layout.rows[:first])
        shown = layout.rows[first : first + height]
        main.replace(columns, height, [self.packer.unpack_row(row, columns) for row in shown])
        self._left = Point(at.row - first, at.x)
        main.saved = SavedCursor(
            x=min(saved_at.x, columns - 1),
            y=min(max(0, saved_at.row - first), height - 1),
            pending=saved_at.x == columns,
            style=saved.style,
            charsets=saved.charsets,
            origin=saved.origin,
        )
        return self._left

    def reset(self) -> None:
        """RIS: restores the initial state, with an empty scrollback."""
        for grid in (self.main, self.alternate):
            grid.clear(0, grid.height, PLAIN)
            grid.all_dirty = True
            grid.saved = SavedCursor()
        self.scrollback.clear()
        self.grid = self.main
        self.set_style(PLAIN)
        self.charsets.reset()
        self.tabs.reset()
        self.reset_region()
        self._go(0, 0)
