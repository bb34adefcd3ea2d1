"""What was copied with the mouse, marked while it is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.panes.selection import Selection, Shape

if TYPE_CHECKING:
    from quicksand_tui.terminal import Lines, Terminal


class Highlight:
    """A selection on a terminal whose output goes on. Lines above the screen do not change; those
    on it are compared."""

    def __init__(self, selection: Selection, terminal: Terminal) -> None:
        self.selection = selection
        ends = (selection.anchor.line, selection.cursor.line)
        if selection.shape is not Shape.BLOCK:
            ends = (selection.span.start.line, selection.span.end.line)
        self._numbers = range(max(min(ends), terminal.screen_line), max(ends) + 1)
        self._texts = self._texts_in(selection.lines)
        self._layout = (terminal.columns, terminal.is_alternate)

    def holds(self, terminal: Terminal) -> bool:
        """Whether what was selected is where it was."""
        layout = (terminal.columns, terminal.is_alternate)
        return layout == self._layout and self._texts_in(terminal) == self._texts

    def _texts_in(self, lines: Lines) -> list[str]:
        return [lines.text(number) for number in self._numbers]
