"""The last lines that a terminal of a guest shows, as text."""

from __future__ import annotations

from quicksand_vt import Terminal

from quicksand_tui.model.text import sanitise


def last_lines(terminal: Terminal, count: int) -> tuple[str, ...]:
    """Returns the last lines of a terminal's screen, without the blank ones at its end."""
    lines: list[str] = []
    for number in reversed(range(terminal.screen_line, terminal.end_line)):
        text = sanitise(terminal.text(number), limit=terminal.columns)
        if text or lines:
            lines.append(text)
        if len(lines) == count:
            break
    return tuple(reversed(lines))


def lines_of_output(output: bytes, columns: int, rows: int, count: int) -> tuple[str, ...]:
    """Returns the last lines that a terminal showed after this output, which may begin within a
    line or a sequence."""
    terminal = Terminal(columns, rows, scrollback=0)
    terminal.feed(output)
    return last_lines(terminal, count)
