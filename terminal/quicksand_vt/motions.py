"""Motions of a cursor through lines, as vi has them: the user's, not a program's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final

from quicksand_vt.cell_rows import BLANK, Mark
from quicksand_vt.numbered_lines import Lines, Position, Walk, line_end, line_start, text_cells


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
