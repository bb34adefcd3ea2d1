"""A screen of rows: erasing, inserting, deleting, scrolling. It does not move the cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.terminal.cursor import SavedCursor
from quicksand_tui.terminal.rows import NO_WRAP, Row
from quicksand_tui.terminal.style import PLAIN, Style

if TYPE_CHECKING:
    from quicksand_tui.terminal.packing import Packer
    from quicksand_tui.terminal.scrollback import Scrollback


class Grid:
    """Rows of cells. Rows and columns count from 0; the end of a range is the first that is not in
    it. Lines that leave it at the top go into ``scrollback``, if it has one."""

    def __init__(
        self, columns: int, height: int, packer: Packer, scrollback: Scrollback | None
    ) -> None:
        self.columns = columns
        self.height = height
        self.rows = [Row(columns) for _ in range(height)]
        self.scrollback = scrollback
        self._packer = packer
        self.saved = SavedCursor()
        """What DECSC saved: each screen has its own."""
        self.all_dirty = True
        """Every row is to be drawn anew, whatever it says itself."""

    def scroll_up(self, top: int, end: int, count: int, blank: Style) -> None:
        """Move rows ``top`` to ``end`` up by ``count``; blank ones come in below."""
        if top > 0:
            self._end_line_before(top)
        self.rows[end - 1].wrap = NO_WRAP
        for _ in range(min(count, end - top)):
            self.scroll_up_once(top, end, blank)

    def scroll_up_once(self, top: int, end: int, blank: Style) -> None:
        """`scroll_up` by one row, as every line of long output does. The last row may be one that
        goes on in the one that comes in."""
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
        """`scroll_up`, but nothing goes into the scrollback."""
        self._end_line_before(top)
        rows = self.rows
        rows[end - 1].wrap = NO_WRAP
        for _ in range(min(count, end - top)):
            row = rows.pop(top)
            row.clear(blank)
            rows.insert(end - 1, row)
        self._touch(top, end)

    def scroll_down(self, top: int, end: int, count: int, blank: Style) -> None:
        """Move rows ``top`` to ``end`` down by ``count``; blank ones come in above."""
        self._end_line_before(top)
        for _ in range(min(count, end - top)):
            row = self.rows.pop(end - 1)
            row.clear(blank)
            self.rows.insert(top, row)
        self.rows[end - 1].wrap = NO_WRAP
        self._touch(top, end)

    def _end_line_before(self, y: int) -> None:
        """What went on in row ``y`` does not any more, as something else will be there."""
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
        """Blank whole rows."""
        if top < end:
            self._end_line_before(top)
        for row in self.rows[top:end]:
            row.clear(blank)

    def resize(self, columns: int, height: int, cursor: int) -> int:
        """Cut or fill each row; drop rows at the end, or at the top if ``cursor`` (a row) would be
        dropped, and return how many there. This is for the alternate screen, whose program draws it
        anew."""
        gone = max(0, cursor - height + 1)
        rows = self.rows[gone : gone + height]
        for row in rows:
            row.resize(columns)
        self.replace(columns, height, rows)
        return gone

    def replace(self, columns: int, height: int, rows: list[Row]) -> None:
        """Have these rows, with blank ones below as they are needed."""
        rows += [Row(columns) for _ in range(height - len(rows))]
        self.rows, self.columns, self.height = rows, columns, height
        self.all_dirty = True

    def content_end(self) -> int:
        """How many rows there are up to the last one that is not blank."""
        end = self.height
        while end and self.rows[end - 1].is_blank:
            end -= 1
        return end

    def take_dirty(self) -> list[int]:
        """Rows that changed since this was asked last."""
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
        """Fill everything with one character (DECALN)."""
        for row in self.rows:
            row.clear(PLAIN)
            row.cells[:] = cell * self.columns
            row.used = self.columns
