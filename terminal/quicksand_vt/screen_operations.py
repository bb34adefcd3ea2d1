"""The operations of control sequences on the main and the alternate screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_vt import boxes
from quicksand_vt.boxes import Box
from quicksand_vt.modes import SavedCursor
from quicksand_vt.packing import Packed
from quicksand_vt.page import Page
from quicksand_vt.reflow import Layout, Point, reflow, screen_top
from quicksand_vt.style import PLAIN

if TYPE_CHECKING:
    from quicksand_vt.cell_rows import Mark


class Screen(Page):
    """Both screens. Rows and columns count from 0, and ends of ranges are exclusive."""

    # Erasing, inserting, deleting

    def erase_in_line(self, kind: int, *, selective: bool = False) -> None:
        """EL and DECSEL: 0 from the cursor, 1 up to it, 2 all."""
        cursor, columns = self.cursor, self.columns
        ranges = {0: (cursor.x, columns), 1: (0, cursor.x + 1), 2: (0, columns)}
        if kind in ranges:
            self._erase(*ranges[kind], selective=selective)

    def _erase(self, start: int, end: int, *, selective: bool = False) -> None:
        """Blanks cells of the cursor's row."""
        cursor = self.cursor
        if not selective and not self.protects:
            self.row.erase(start, end, cursor.blank)
        elif self.work.take(end - start):
            self.row.erase_unprotected(start, end, cursor.blank)
        cursor.pending = False

    def erase_in_display(self, kind: int, *, selective: bool = False) -> None:
        """ED and DECSED: 0 from the cursor, 1 up to it, 2 all, 3 the scrollback."""
        cursor, grid = self.cursor, self.grid
        if kind == 0 and cursor.x > 0:
            self.erase_in_line(0, selective=selective)
            self._clear(cursor.y + 1, grid.height, selective=selective)
        elif kind == 0:
            self._clear(cursor.y, grid.height, selective=selective)
        elif kind == 1:
            self.erase_in_line(1, selective=selective)
            self._clear(0, cursor.y, selective=selective)
        elif kind == 2:
            self._clear(0, grid.height, selective=selective)
            cursor.pending = False
        elif kind == 3 and not selective:
            self.scrollback.clear()
            grid.all_dirty = True

    def _clear(self, top: int, end: int, *, selective: bool) -> None:
        """Blanks whole rows."""
        box = Box(top, 0, end, self.columns)
        if not selective and not self.protects:
            self.grid.clear(top, end, self.cursor.blank)
        elif self.work.take(box.cells):
            boxes.erase(self.grid, box, self.cursor.blank, selective=True)

    def erase_characters(self, count: int) -> None:
        """ECH."""
        x = self.cursor.x
        self._erase(x, min(x + count, self.columns))

    def insert_characters(self, count: int) -> None:
        """ICH; does nothing outside the left and right margins."""
        cursor = self.cursor
        if self.left <= cursor.x < self.right:
            self.row.insert(cursor.x, count, cursor.blank, self.right)
        cursor.pending = False

    def delete_characters(self, count: int) -> None:
        """DCH; does nothing outside the left and right margins."""
        cursor = self.cursor
        if self.left <= cursor.x < self.right:
            self.row.delete(cursor.x, count, cursor.blank, self.right)
        cursor.pending = False

    def insert_lines(self, count: int) -> None:
        """IL; does nothing outside the margins."""
        if self.is_inside:
            self.scroll_down(self.cursor.y, count)
            self.carriage_return()

    def delete_lines(self, count: int) -> None:
        """DL; does nothing outside the margins. Deleted lines never go to the scrollback."""
        cursor = self.cursor
        if self.is_inside:
            if self.has_sides:
                box = Box(cursor.y, self.left, self.end, self.right)
                boxes.shift(self.grid, box, count, cursor.blank)
            else:
                self.grid.delete(cursor.y, self.end, count, cursor.blank)
            self.carriage_return()

    def scroll(self, count: int) -> None:
        """SU, or SD if negative."""
        if count < 0:
            self.scroll_down(self.top, -count)
        elif self.has_sides:
            boxes.shift(self.grid, self.box, count, self.cursor.blank)
        else:
            self.grid.scroll_up(self.top, self.end, count, self.cursor.blank)

    def insert_columns(self, count: int) -> None:
        """DECIC; does nothing outside the margins."""
        cursor = self.cursor
        if self.is_inside:
            box = Box(self.top, cursor.x, self.end, self.right)
            boxes.insert_columns(self.grid, box, count, cursor.blank)

    def delete_columns(self, count: int) -> None:
        """DECDC; does nothing outside the margins."""
        cursor = self.cursor
        if self.is_inside:
            box = Box(self.top, cursor.x, self.end, self.right)
            boxes.delete_columns(self.grid, box, count, cursor.blank)

    def index_forward(self) -> None:
        """DECFI: moves one column to the right; at the right margin, scrolls to the left."""
        cursor = self.cursor
        if cursor.x != self.right - 1:
            self._go(cursor.y, cursor.x + 1)
        elif self.is_inside:
            boxes.delete_columns(self.grid, self.box, 1, cursor.blank)

    def index_back(self) -> None:
        """DECBI: moves one column to the left; at the left margin, scrolls to the right."""
        cursor = self.cursor
        if cursor.x != self.left:
            self._go(cursor.y, cursor.x - 1)
        elif self.is_inside:
            boxes.insert_columns(self.grid, self.box, 1, cursor.blank)

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
            self.left_at = Point(self.cursor.y, self.cursor.x + self.cursor.pending)
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
            self._resize_main(columns, height, self.left_at)
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
        self.left_at = Point(at.row - first, at.x)
        main.saved = SavedCursor(
            x=min(saved_at.x, columns - 1),
            y=min(max(0, saved_at.row - first), height - 1),
            pending=saved_at.x == columns,
            style=saved.style,
            charsets=saved.charsets,
            origin=saved.origin,
        )
        return self.left_at

    def reset(self) -> None:
        """RIS: restores the initial state, with an empty scrollback."""
        for grid in (self.main, self.alternate):
            grid.clear(0, grid.height, PLAIN)
            grid.all_dirty = True
            grid.saved = SavedCursor()
        self.scrollback.clear()
        self.grid = self.main
        self.protects = False
        self.set_style(PLAIN)
        self.charsets.reset()
        self.tabs.reset()
        self.reset_region()
        self._go(0, 0)
