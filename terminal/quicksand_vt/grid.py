"""The rows of a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_vt.cell_rows import NO_WRAP, Row
from quicksand_vt.modes import SavedCursor
from quicksand_vt.style import PLAIN, Style

if TYPE_CHECKING:
    from quicksand_vt.packing import Packer
    from quicksand_vt.stored_lines import Scrollback


class Grid:
    """A screen of rows; it does not move the cursor. Rows and columns count from 0, and ends of
    ranges are exclusive. Lines that leave at the top go to ``scrollback``, if there is one."""

    def __init__(
        self, columns: int, height: int, packer: Packer, scrollback: Scrollback | None
    ) -> None:
        self.columns = columns
        self.open_columns = columns
        """As ``columns``, but 0 while there are left and right margins, where text may not simply
        go on to the right."""
        self.height = height
        self.rows = [Row(columns) for _ in range(height)]
        self.scrollback = scrollback
        self._packer = packer
        self.saved = SavedCursor()
        """The cursor saved by DECSC; each screen has its own."""
        self.all_dirty = True
        """Every row must be drawn anew, whatever its own flag says."""

    def scroll_up(self, top: int, end: int, count: int, blank: Style) -> None:
        """Moves rows ``top`` to ``end`` up by ``count``, adding blank ones below."""
        if top > 0:
            self._end_line_before(top)
        self.rows[end - 1].wrap = NO_WRAP
        for _ in range(min(count, end - top)):
            self.scroll_up_once(top, end, blank)

    def scroll_up_once(self, top: int, end: int, blank: Style) -> None:
        """Does `scroll_up` by one row, as every line of long output does. The last row may wrap
        into the new one."""
        row = self.rows.pop(top)
        if top == 0 and self.scrollback is not None:
            self.scrollback.push(*self._packer.pack(row))
        row.clear(blank)
        self.rows.insert(end - 1, row)
        if end - top == self.height:
            self.all_dirty = True
        else:
            self._touch(top, end)

    def delete(self, top: int, end: int, count: int, blank: Style) -> None:
        """Does `scroll_up`, but without adding to the scrollback."""
        self._end_line_before(top)
        rows = self.rows
        rows[end - 1].wrap = NO_WRAP
        for _ in range(min(count, end - top)):
            row = rows.pop(top)
            row.clear(blank)
            rows.insert(end - 1, row)
        self._touch(top, end)

    def scroll_down(self, top: int, end: int, count: int, blank: Style) -> None:
        """Moves rows ``top`` to ``end`` down by ``count``, adding blank ones above."""
        self._end_line_before(top)
        for _ in range(min(count, end - top)):
            row = self.rows.pop(end - 1)
            row.clear(blank)
            self.rows.insert(top, row)
        self.rows[end - 1].wrap = NO_WRAP
        self._touch(top, end)

    def _end_line_before(self, y: int) -> None:
        """Ends the line that wrapped into row ``y``, which gets other content."""
        if y > 0:
            self.rows[y - 1].wrap = NO_WRAP
        elif self.scrollback is not None:
            self.scrollback.end_line()

    def _touch(self, top: int, end: int) -> None:
        if end - top == self.height:
            self.all_dirty = True
        else:
            for row in self.rows[top:end]:
                row.dirty = True

    def clear(self, top: int, end: int, blank: Style) -> None:
        if top < end:
            self._end_line_before(top)
        for row in self.rows[top:end]:
            row.clear(blank)

    def resize(self, columns: int, height: int, cursor: int) -> int:
        """Cuts or fills each row; drops rows at the end, or at the top if row ``cursor`` would go.
        Returns how many were dropped at the top. For the alternate screen, which its program
        redraws."""
        gone = max(0, cursor - height + 1)
        rows = self.rows[gone : gone + height]
        for row in rows:
            row.resize(columns)
        self.replace(columns, height, rows)
        return gone

    def replace(self, columns: int, height: int, rows: list[Row]) -> None:
        """Replaces the rows, filling up with blank ones below."""
        rows += [Row(columns) for _ in range(height - len(rows))]
        self.rows, self.columns, self.height = rows, columns, height
        self.open_columns = columns
        self.all_dirty = True

    def content_end(self) -> int:
        """Returns the number of rows up to the last one that is not blank."""
        end = self.height
        while end and self.rows[end - 1].is_blank:
            end -= 1
        return end

    def take_dirty(self) -> list[int]:
        """Returns the rows that changed since the last call."""
        if self.all_dirty:
            for row in self.rows:
                row.dirty = False
            self.all_dirty = False
            return list(range(self.height))
        found = [y for y, row in enumerate(self.rows) if row.dirty]
        for y in found:
            self.rows[y].dirty = False
        return found

    def fill(self, cell: str) -> None:
        """Fills the screen with one character (DECALN)."""
        for row in self.rows:
            row.clear(PLAIN)
            row.cells[:] = cell * self.columns
            row.used = self.columns
