"""The last lines of a shell, for where it is not shown itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.model.text import sanitise

if TYPE_CHECKING:
    from quicksand_tui.panes.pane import Pane


def last_lines(pane: Pane, count: int) -> tuple[str, ...]:
    """Returns the last lines of a pane's screen, without the blank ones at its end."""
    terminal = pane.terminal
    lines: list[str] = []
    for number in reversed(range(terminal.screen_line, terminal.end_line)):
        text = sanitise(terminal.text(number), limit=terminal.columns)
        if text or lines:
            lines.append(text)
        if len(lines) == count:
            break
    return tuple(reversed(lines))
