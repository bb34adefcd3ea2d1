"""Writes text into cells, at the cursor and in its style."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_vt.cell_rows import CLUSTERS, FULL_WRAP, NO_WRAP, SHORT_WRAP, SIMPLE, WIDE, Row
from quicksand_vt.style import PLAIN
from quicksand_vt.width import NOT_SHOWN, PIECES, ZWJ, Widths, has_room, joins, joins_by_zwj, widens

if TYPE_CHECKING:
    from quicksand_vt.screen_operations import Screen


class Writer:
    """Writes text on a screen. Terminals do little else, so this is optimised: a whole text becomes
    cells at once, and each row takes its cells at once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._cursor = screen.cursor
        self._charsets = screen.charsets
        self._modes = screen.modes
        self._widths = Widths()
        self._last = ""
        """The character that REP repeats."""

    def write(self, text: str) -> None:
        """Writes text without control characters; it must not be empty."""
        if self._charsets.translating:
            text = self._charsets.translate(text)
        if not text.isascii():
            self._write_any(text)
            return
        self._last = text[-1]
        cursor, grid = self._cursor, self._screen.grid
        x = cursor.x
        end = x + len(text)
        if end >= grid.open_columns or self._modes.insert:
            self._write_to_margin(text)
            return
        row = grid.rows[cursor.y]
        if row.kind:
            row.cut(x)
            row.cut(end)
        row.cells[x:end] = text
        # Not max(), which is a call: this is the innermost loop.
        if end > row.used:  # noqa: PLR1730
            row.used = end
        style = cursor.style
        if style is not PLAIN or x < row.styled:
            row.styles[x:end] = [style] * (end - x)
            if end > row.styled:  # noqa: PLR1730
                row.styled = end
        row.dirty = True
        cursor.x = end

    def repeat(self, count: int) -> None:
        """REP: writes the last character again, at most as often as the screen has cells; between
        margins, where each line that scrolls takes long, at most one line."""
        if self._last:
            screen = self._screen
            width = self._widths[self._last]
            cells = [self._last, ""] if width == 2 else [self._last]
            most = screen.right - screen.left if screen.has_sides else screen.columns
            count = min(count, most * (1 if screen.has_sides else screen.height))
            self._put(cells * count, WIDE if width == 2 else SIMPLE)

    def forget(self) -> None:
        """Forgets the last character."""
        self._last = ""

    def _write_any(self, text: str) -> None:
        if self._modes.autowrap and not self._modes.insert:
            self._write_cells(text)
        else:
            # Characters at the margin overwrite each other, so their order matters.
            for char in text:
                self._write_cells(char)

    # ASCII at the margin

    def _write_to_margin(self, text: str) -> None:
        """Does `write` for ASCII that reaches the last column, perhaps repeatedly, or in insert
        mode."""
        cursor, screen = self._cursor, self._screen
        at, total = 0, len(text)
        while at < total:
            if cursor.pending:
                self._leave_margin()
            x, limit = cursor.x, screen.grid.open_columns or screen.limit
            end = min(x + total - at, limit)
            piece = text[at : at + end - x]
            at += end - x
            if at < total and not self._modes.autowrap:
                piece, at = piece[:-1] + text[-1], total
            self._put_in_row(list(piece), x, limit, SIMPLE)

    # From text to cells

    def _write_cells(self, text: str) -> None:
        cells: list[str] = []
        kind = SIMPLE
        waiting = self._cluster_before().endswith(ZWJ)
        for match in PIECES.finditer(text):
            of, piece = match.lastindex, match[0]
            if of == 3 or waiting:
                char = piece[0]
                kind = max(kind, self._add(cells, char))
                waiting = char == ZWJ
                piece = piece[1:]
            if of == 1:
                cells += piece
            elif piece:
                both = [""] * (2 * len(piece))
                both[::2] = piece
                cells += both
                kind = kind or WIDE
        if cells:
            self._last = (cells[-1] or cells[-2])[0]
            self._put(cells, kind)

    def _add(self, cells: list[str], char: str) -> int:
        """Adds a character to cells that are not written yet, or to the cell before them; returns
        the resulting kind of row."""
        width = self._widths[char]
        if width == NOT_SHOWN:
            return SIMPLE
        if not cells:
            if self._join_before(char, width):
                return SIMPLE
        elif self._join(cells, char, width):
            return CLUSTERS
        if width == 0:
            return SIMPLE
        cells.append(char)
        if width == 2:
            cells.append("")
        return width - 1

    def _join(self, cells: list[str], char: str, width: int) -> bool:
        """Adds a character to the last cell, if it belongs there; returns whether it does."""
        at = -1 if cells[-1] else -2
        cluster = cells[at]
        if width and cluster[-1] != ZWJ and not self._modes.clusters:
            return False
        if (width and not self._joins(cluster, char)) or not has_room(cluster):
            return False
        cells[at] = cluster + char
        if at == -1 and self._modes.clusters and widens(cluster, char):
            cells.append("")
        return True

    def _joins(self, cluster: str, char: str) -> bool:
        """Whether a character that has a width still joins the cell before it."""
        return (joins if self._modes.clusters else joins_by_zwj)(cluster, char)

    # The character before the cursor

    def _column_before(self) -> int:
        """Returns the column where the character before the cursor begins; -1 if there is none."""
        cursor = self._cursor
        x = cursor.x if cursor.pending else cursor.x - 1
        return x - 1 if x > 0 and not self._screen.row.cells[x] else x

    def _cluster_before(self) -> str:
        x = self._column_before()
        return self._screen.row.cells[x] if x >= 0 else ""

    def _join_before(self, char: str, width: int) -> bool:
        """Adds a character to the cell before the cursor, if it belongs there; returns whether."""
        cluster = self._cluster_before()
        if not cluster or (width and not self._joins(cluster, char)) or not has_room(cluster):
            return False
        x, row = self._column_before(), self._screen.row
        is_wide = x + 1 < len(row.cells) and not row.cells[x + 1]
        if is_wide or not (self._modes.clusters and widens(cluster, char)):
            row.cells[x] = cluster + char
            row.used = max(row.used, x + 1)
            row.kind = CLUSTERS
            row.dirty = True
            return True
        return self._widen(row, x, cluster + char)

    def _widen(self, row: Row, x: int, cluster: str) -> bool:
        """Replaces the narrow character before the cursor by a wide one. It is written anew, since
        it may have to wrap; returns False if that is not possible."""
        cursor = self._cursor
        before = cursor.x
        cursor.x = x
        limit = self._screen.limit
        if x + 1 >= limit and not self._modes.autowrap:
            cursor.x = before
            return False
        if self._modes.insert:
            row.delete(x, 1, cursor.blank, limit)
        style, cursor.style = cursor.style, row.styles[x]
        cursor.pending = False
        self._put([cluster, ""], CLUSTERS)
        cursor.style = style
        return True

    # From cells to rows

    def _put(self, cells: list[str], kind: int) -> None:
        """Writes cells at the cursor, in as many rows as needed."""
        screen, cursor = self._screen, self._cursor
        at, total = 0, len(cells)
        while at < total:
            if cursor.pending:
                self._leave_margin()
            x, limit = cursor.x, screen.grid.open_columns or screen.limit
            end = x + total - at
            if end > limit:
                end = limit
                if not cells[at + end - x]:
                    # A wide character would begin in the last column.
                    end -= 1
            self._put_in_row(cells[at : at + end - x], x, limit, kind)
            at += end - x
            if at < total and end < limit:
                if not self._modes.autowrap:
                    return
                screen.row.erase(end, limit, cursor.blank)
                screen.wrap(SHORT_WRAP)

    def _put_in_row(self, cells: list[str], x: int, limit: int, kind: int) -> None:
        """Writes cells from column ``x`` of the cursor's row, where they must fit before
        ``limit``."""
        cursor, row = self._cursor, self._screen.row
        end = x + len(cells)
        if self._modes.insert:
            row.insert(x, end - x, cursor.blank, limit)
        if row.kind:
            row.cut(x)
            row.cut(end)
        row.cells[x:end] = cells
        row.kind = max(row.kind, kind)
        row.used = max(row.used, end)
        style = cursor.style
        if style is not PLAIN or x < row.styled:
            row.styles[x:end] = [style] * (end - x)
            row.styled = max(row.styled, end)
        row.dirty = True
        if end < limit:
            cursor.x = end
        else:
            if end == len(row.cells):
                # It is not known yet whether the line wraps.
                row.wrap = NO_WRAP
            cursor.x = end - 1
            cursor.pending = True

    def _leave_margin(self) -> None:
        self._cursor.pending = False
        if self._modes.autowrap:
            self._screen.wrap(FULL_WRAP)
