"""Text between two places, words and lines."""

from __future__ import annotations

from typing import Final

from quicksand_tui.terminal.lines import (
    Lines,
    Position,
    Span,
    Walk,
    line_end,
    line_start,
    text_cells,
)

WORD_MAX: Final = 4096
"""Characters to either side that are looked at for the ends of a word."""


def selected_text(lines: Lines, span: Span) -> str:
    """The text of cells that follow each other. Rows of one line are put together; blanks at the
    end of lines are left out."""
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
    """The text of a rectangle with these corners, both in it."""
    left, right = sorted((corner.x, other.x))
    top, bottom = sorted((corner.line, other.line))
    rows = range(max(top, lines.first_line), min(bottom + 1, lines.end_line))
    return "\n".join("".join(lines.cells(n)[left : right + 1]).rstrip(" ") for n in rows)


def line_at(lines: Lines, position: Position) -> Span:
    """The whole line at a place, with the rows in which it goes on."""
    first, last = line_start(lines, position.line), line_end(lines, position.line)
    return Span(Position(first, 0), Position(last, lines.columns))


def word_at(lines: Lines, position: Position) -> Span:
    """The word at a place, also where it goes on in another row; or blanks that follow each other;
    or one of the characters that are in no word."""
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
