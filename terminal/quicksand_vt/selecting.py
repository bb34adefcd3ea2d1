"""The text between two positions of lines, and the words and lines at one."""

from __future__ import annotations

from typing import Final

from quicksand_vt.numbered_lines import (
    Lines,
    Position,
    Span,
    Walk,
    line_end,
    line_start,
    text_cells,
)

WORD_MAX: Final = 4096
"""How many characters to either side are searched for the ends of a word."""


def selected_text(lines: Lines, span: Span) -> str:
    """Returns the text of a span. Wrapped rows are joined; blanks at the end of lines are
    dropped."""
    start, end = span
    pieces: list[str] = []
    for number in range(max(start.line, lines.first_line), min(end.line + 1, lines.end_line)):
        if start.line < number < end.line:
            pieces.append(lines.text(number))
        else:
            cells = text_cells(lines, number)
            begin = start.x if number == start.line else 0
            stop = end.x if number == end.line else len(cells)
            pieces.append("".join(cells[begin:stop]))
        if number < end.line and not lines.is_wrapped(number):
            pieces.append("\n")
    return "".join(pieces)


def block_text(lines: Lines, corner: Position, other: Position) -> str:
    """Returns the text of the rectangle between two corners, which it includes."""
    left, right = sorted((corner.x, other.x))
    top, bottom = sorted((corner.line, other.line))
    rows = range(max(top, lines.first_line), min(bottom + 1, lines.end_line))
    return "\n".join("".join(lines.cells(n)[left : right + 1]).rstrip(" ") for n in rows)


def line_at(lines: Lines, position: Position) -> Span:
    """Returns the whole line at a position, with all its wrapped rows."""
    first, last = line_start(lines, position.line), line_end(lines, position.line)
    return Span(Position(first, 0), Position(last, lines.columns))


def word_at(lines: Lines, position: Position) -> Span:
    """Returns the word at a position, across wrapped rows; or a run of blanks; or a single
    character that is in no word."""
    start, end = Walk(lines, position), Walk(lines, position)
    kind = start.kind
    begin, stop = start.position, end.end
    if kind == "other":
        return Span(begin, stop)
    for _ in range(WORD_MAX):
        if not start.back() or start.broke or start.kind != kind:
            break
        begin = start.position
    for _ in range(WORD_MAX):
        if not end.forward() or end.broke or end.kind != kind:
            break
        stop = end.end
    return Span(begin, stop)
