"""Copy mode and what was copied with the mouse, within a pane."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from quicksand_tui.panes.copy_mode import HINT, CopyMode
from quicksand_tui.panes.highlight import Highlight
from quicksand_tui.panes.messages import PaneCopied
from quicksand_tui.panes.selection import Selection, told_size
from quicksand_tui.terminal import Position

if TYPE_CHECKING:
    from quicksand_tui.panes.pane import Pane

SEARCH_S: Final = 0.008
"""How long a search goes on at one go."""


class Copying:
    """Begins, searches in and ends the copy mode of a pane."""

    def __init__(self, pane: Pane) -> None:
        self._pane = pane
        self.mode: CopyMode | None = None
        self.highlight: Highlight | None = None

    def begin(self, *, by_mouse: bool = False) -> CopyMode:
        """Have copy mode; the one there is, if there is one. ``by_mouse``: it is over when the
        view is down at the end again."""
        if self.mode is not None:
            return self.mode
        terminal = self._pane.terminal
        self.highlight = None
        self.mode = CopyMode(
            terminal.freeze(),
            height=self._pane.size.height,
            cursor=Position(terminal.cursor.line, terminal.cursor.x),
            leaves_at_end=by_mouse,
        )
        if not by_mouse:
            self.mode.note = HINT
        self.changed()
        return self.mode

    def leave(self) -> None:
        """Show the screen again, as it is now."""
        self.mode = None
        self.changed()

    def forget(self) -> None:
        """The terminal is another one."""
        self.mode = self.highlight = None

    def changed(self) -> None:
        """Show where it is now, and go on searching."""
        if self.mode is not None and self.mode.is_searching:
            self._pane.run_worker(self._search(), group="search", exclusive=True)
        self._show()

    def _show(self) -> None:
        self._pane.redraw()
        self._pane.post_message(self._pane.Changed(self._pane))

    async def _search(self) -> None:
        while (mode := self.mode) is not None and mode.is_searching:
            mode.search_on(SEARCH_S)
            await asyncio.sleep(0)
        self._show()

    def resize(self, height: int, *, laid_out: bool) -> None:
        """The pane has another size; with another width, lines have other numbers."""
        self.highlight = None
        if self.mode is None:
            return
        self.mode.resize(height)
        if laid_out:
            self.mode.thaw(self._pane.terminal.freeze())
        self.changed()

    # Copying

    def copy(self, text: str) -> None:
        """Put a text where it can be pasted from, and say so."""
        self._pane.app.copy_to_clipboard(text)
        self._pane.post_message(PaneCopied(self._pane, told_size(text)))

    def take(self, selection: Selection) -> None:
        """Copy what was selected with the mouse, and leave it marked."""
        if text := selection.text:
            self.copy(text)
        if self.mode is not None and self.mode.leaves_at_end and self.mode.is_at_end:
            self.mode = None
        if self.mode is None:
            highlight = Highlight(selection, self._pane.terminal)
            self.highlight = highlight if highlight.holds(self._pane.terminal) else None
        self.changed()

    def check_highlight(self) -> None:
        """There was output: what is marked may not be there any more."""
        if self.highlight is not None and not self.highlight.holds(self._pane.terminal):
            self.clear_highlight()

    def clear_highlight(self) -> None:
        """What was copied is marked no longer."""
        if self.highlight is not None:
            self.highlight = None
            self._pane.redraw()
