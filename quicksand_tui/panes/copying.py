"""Copy mode of one pane, and copying with the mouse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from quicksand_vt import Position

from quicksand_tui.panes.copy_mode import HINT, CopyMode
from quicksand_tui.panes.messages import PaneChanged, PaneCopied
from quicksand_tui.panes.selection import Highlight, Selection, told_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widget import Widget

    from quicksand_tui.panes.messages import Shown

SEARCH_S: Final = 0.008
"""Seconds for which a search runs before the event loop continues."""


class Copying:
    """Begins and ends the copy mode of a pane, and runs its search."""

    def __init__(self, pane: Widget, shown: Shown, redraw: Callable[[], None]) -> None:
        self._pane = pane
        self._shown = shown
        self._redraw = redraw
        self.highlight: Highlight | None = None

    @property
    def mode(self) -> CopyMode | None:
        return self._shown.copy_mode

    def begin(self, *, by_mouse: bool = False) -> CopyMode:
        """Begins copy mode unless it is on, and returns it. With ``by_mouse``, it ends when the
        view is at the end again."""
        if self.mode is not None:
            return self.mode
        terminal = self._shown.terminal
        self.highlight = None
        self._shown.copy_mode = mode = CopyMode(
            terminal.freeze(),
            height=self._pane.size.height,
            cursor=Position(terminal.cursor.line, terminal.cursor.x),
            leaves_at_end=by_mouse,
        )
        if not by_mouse:
            mode.note = HINT
        self.changed()
        return mode

    def leave(self) -> None:
        self._shown.copy_mode = None
        self.changed()

    def forget(self) -> None:
        """Drops mode and highlight, since the terminal was replaced."""
        self._shown.copy_mode = self.highlight = None

    def changed(self) -> None:
        """Redraws, and continues a search."""
        if self.mode is not None and self.mode.is_searching:
            self._pane.run_worker(self._search(), group="search", exclusive=True)
        self._show()

    def _show(self) -> None:
        self._redraw()
        self._pane.post_message(PaneChanged())

    async def _search(self) -> None:
        while (mode := self.mode) is not None and mode.is_searching:
            mode.search_on(SEARCH_S)
            await asyncio.sleep(0)
        self._show()

    def resize(self, height: int, *, laid_out: bool) -> None:
        """Follows a new size of the pane; ``laid_out`` says that lines were renumbered."""
        self.highlight = None
        if self.mode is None:
            return
        self.mode.resize(height)
        if laid_out:
            self.mode.thaw(self._shown.terminal.freeze())
        self.changed()

    # Copying

    def copy(self, text: str) -> None:
        """Puts a text on the clipboard, and reports it."""
        self._pane.app.copy_to_clipboard(text)
        self._pane.post_message(PaneCopied(told_size(text)))

    def take(self, selection: Selection) -> None:
        """Copies the text that the mouse selected, and highlights it."""
        if text := selection.text:
            self.copy(text)
        if self.mode is not None and self.mode.leaves_at_end and self.mode.is_at_end:
            self._shown.copy_mode = None
        if self.mode is None:
            highlight = Highlight(selection, self._shown.terminal)
            self.highlight = highlight if highlight.holds(self._shown.terminal) else None
        self.changed()

    def check_highlight(self) -> None:
        """Drops the highlight if output has changed its text."""
        if self.highlight is not None and not self.highlight.holds(self._shown.terminal):
            self.clear_highlight()

    def clear_highlight(self) -> None:
        if self.highlight is not None:
            self.highlight = None
            self._redraw()
