"""The rows of a screen, and the motions of copy mode through lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

from quicksand_tui.terminal.lines import (
    Lines,
    Position,
    Walk,
    line_end,
    line_start,
    text_cells,
)
from quicksand_tui.terminal.modes import SavedCursor
from quicksand_tui.terminal.rows import BLANK, NO_WRAP, Mark, Row
from quicksand_tui.terminal.style import PLAIN, Style

if TYPE_CHECKING:
    from quicksand_tui.terminal.lines import Scrollback
    from quicksand_tui.terminal.packing import Packer


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


class Motion(Enum):
    """A motion of the cursor; the value is vi's key for it, mostly."""

    LEFT = "h"
    RIGHT = "l"
    UP = "k"
    DOWN = "j"
    WORD_NEXT = "w"
    WORD_BACK = "b"
    WORD_END = "e"
    LINE_START = "0"
    LINE_TEXT = "^"
    """The first character of a line that is not blank."""
    LINE_END = "$"
    TOP = "g"
    """The oldest line."""
    BOTTOM = "G"
    PARAGRAPH_BACK = "{"
    """The empty line before the paragraph."""
    PARAGRAPH_NEXT = "}"
    PROMPT_BACK = "["
    """The previous prompt, if the shell marks prompts (OSC 133)."""
    PROMPT_NEXT = "]"


def move(lines: Lines, position: Position, motion: Motion) -> Position:
    """Returns the position after a motion: the start of an existing character, or the same position
    if the motion leads nowhere."""
    place = _MOTIONS[motion](lines, _clamp(lines, position))
    return _clamp(lines, place)


def _clamp(lines: Lines, position: Position) -> Position:
    line = min(max(position.line, lines.first_line), lines.end_line - 1)
    x = min(max(position.x, 0), lines.columns - 1)
    cells = lines.cells(line)
    return Position(line, x - 1 if 0 < x < len(cells) and not cells[x] else x)


def _right(lines: Lines, at: Position) -> Position:
    cells = lines.cells(at.line)
    wide = at.x + 1 < len(cells) and not cells[at.x + 1]
    return at._replace(x=at.x + 1 + wide) if at.x + 1 + wide < lines.columns else at


def _word_next(lines: Lines, at: Position) -> Position:
    walk = Walk(lines, at)
    kind = walk.kind
    while walk.forward():
        if walk.kind != "blank" and (walk.broke or walk.kind != kind):
            return walk.position
        if walk.broke or walk.kind != kind:
            kind = "blank"
    return walk.position


def _word_back(lines: Lines, at: Position) -> Position:
    walk = Walk(lines, at)
    while walk.back() and walk.kind == "blank":
        pass
    kind, found = walk.kind, walk.position
    while walk.back() and walk.kind == kind and not walk.broke:
        found = walk.position
    return found


def _word_end(lines: Lines, at: Position) -> Position:
    walk = Walk(lines, at)
    while walk.forward() and walk.kind == "blank":
        pass
    kind, found = walk.kind, walk.position
    while walk.forward() and walk.kind == kind and not walk.broke:
        found = walk.position
    return found


def _line_text(lines: Lines, at: Position) -> Position:
    first = line_start(lines, at.line)
    cells = text_cells(lines, first)
    return Position(first, next((x for x, cell in enumerate(cells) if cell != BLANK), 0))


def _line_end(lines: Lines, at: Position) -> Position:
    last = line_end(lines, at.line)
    return Position(last, max(0, len(text_cells(lines, last)) - 1))


def _paragraph(lines: Lines, at: Position, numbers: range) -> Position:
    """Returns the nearest empty line beyond some text; the last of ``numbers`` if there is none."""
    text = _has_text(lines, at.line)
    for number in numbers:
        if _has_text(lines, number):
            text = True
        elif text:
            return Position(number, 0)
    return Position(numbers[-1], 0) if numbers else at


def _has_text(lines: Lines, number: int) -> bool:
    return bool(lines.text(number).strip(BLANK))


def _prompt(lines: Lines, at: Position, numbers: range) -> Position:
    found = (number for number in numbers if lines.mark(number) & Mark.PROMPT)
    line = next(found, None)
    return at if line is None else Position(line, 0)


_MOTIONS: Final[Mapping[Motion, Callable[[Lines, Position], Position]]] = {
    Motion.LEFT: lambda _, at: at._replace(x=at.x - 1),
    Motion.RIGHT: _right,
    Motion.UP: lambda _, at: at._replace(line=at.line - 1),
    Motion.DOWN: lambda _, at: at._replace(line=at.line + 1),
    Motion.WORD_NEXT: _word_next,
    Motion.WORD_BACK: _word_back,
    Motion.WORD_END: _word_end,
    Motion.LINE_START: lambda lines, at: Position(line_start(lines, at.line), 0),
    Motion.LINE_TEXT: _line_text,
    Motion.LINE_END: _line_end,
    Motion.TOP: lambda lines, _: Position(lines.first_line, 0),
    Motion.BOTTOM: lambda lines, _: Position(lines.end_line - 1, 0),
    Motion.PARAGRAPH_BACK: lambda lines, at: _paragraph(
        lines, at, range(at.line - 1, lines.first_line - 1, -1)
    ),
    Motion.PARAGRAPH_NEXT: lambda lines, at: _paragraph(
        lines, at, range(at.line + 1, lines.end_line)
    ),
    Motion.PROMPT_BACK: lambda lines, at: _prompt(
        lines, at, range(at.line - 1, lines.first_line - 1, -1)
    ),
    Motion.PROMPT_NEXT: lambda lines, at: _prompt(lines, at, range(at.line + 1, lines.end_line)),
}
