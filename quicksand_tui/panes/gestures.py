"""What the mouse does in a pane where it is not the guest's: select, copy, look back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from textual import events
from textual.timer import Timer

from quicksand_tui.panes.mouse import mouse_event
from quicksand_tui.panes.selection import Selection, Shape
from quicksand_tui.terminal import Position, line_at

if TYPE_CHECKING:
    from quicksand_tui.panes.pane import Pane

WHEEL_LINES: Final = 3
EDGE_S: Final = 0.05
"""Between two lines that the view moves while the mouse is held beyond its edge."""

LEFT_BUTTON: Final = 1


class Gestures:
    """Takes a pane's events of the mouse. A press decides whose all is up to its release: the
    guest's, if its program wants to know of it, but not with shift and not in copy mode."""

    def __init__(self, pane: Pane) -> None:
        self._pane = pane
        self._anchor: Position | None = None
        """Where the button was pressed that is held."""
        self._drags = False
        self._guest_holds = False
        """A button is held whose press the guest was told of."""
        self._at = (0, 0)
        """Where in the pane the mouse was dragged to last; perhaps beyond its edges."""
        self._edge: Timer | None = None

    def press(self, event: events.MouseDown) -> None:
        """A button is down."""
        event.stop()
        pane = self._pane
        if not self._is_ours(event) and pane.pass_on(mouse_event(event)):
            self._guest_holds = True
            pane.capture_mouse()
            return
        if event.button != LEFT_BUTTON:
            return
        pane.copying.clear_highlight()
        self._anchor, self._drags = self._position(int(event.x), int(event.y)), False
        if pane.copy_mode is not None:
            pane.copy_mode.point(self._anchor)
            pane.copying.changed()
        pane.capture_mouse()

    def move(self, event: events.MouseMove) -> None:
        """It moves, perhaps with a button held."""
        event.stop()
        if self._guest_holds or (self._anchor is None and not self._is_ours(event)):
            self._pane.pass_on(mouse_event(event))
        if self._anchor is None:
            return
        self._at = int(event.x), int(event.y)
        if not self._drags and self._position(*self._at) == self._anchor:
            return
        self._drags = True
        self._drag()
        beyond = not 0 <= self._at[1] < self._pane.size.height
        if beyond and self._edge is None:
            self._edge = self._pane.set_interval(EDGE_S, self._drag)
        elif not beyond:
            self._stop_edge()

    def _drag(self) -> None:
        """Select up to where the mouse is. Beyond the edge, the view moves."""
        if self._anchor is None:
            return
        pane = self._pane
        mode = pane.copy_mode or pane.copying.begin(by_mouse=True)
        mode.drag(self._anchor, self._position(*self._at), Shape.CHARACTERS)
        pane.copying.changed()

    def release(self, event: events.MouseUp) -> None:
        """A button is up: what was dragged over is copied."""
        event.stop()
        if self._guest_holds:
            self._pane.pass_on(mouse_event(event))
        drags = self._drags
        self.cancel()
        mode = self._pane.copy_mode
        if drags and mode is not None and mode.selection is not None:
            self._pane.copying.take(mode.selection)

    def cancel(self) -> None:
        """No button is held any more, or it does not matter."""
        if self._anchor is not None or self._guest_holds:
            self._pane.release_mouse()
        self._anchor, self._drags, self._guest_holds = None, False, False
        self._stop_edge()

    def click(self, event: events.Click) -> None:
        """The second one selects a word, the third one a line."""
        event.stop()
        if event.button != LEFT_BUTTON or event.chain < 2 or self._wants_it(event):
            return
        pane = self._pane
        lines = pane.lines
        position = self._position(int(event.x), int(event.y))
        if event.chain == 2:
            selection = Selection.of_word(lines, position)
        else:
            start, end = line_at(lines, position)
            selection = Selection(lines, start, end._replace(x=end.x - 1), Shape.LINES)
        if pane.copy_mode is not None:
            pane.copy_mode.select(selection)
        pane.copying.take(selection)

    def wheel(self, event: events.MouseEvent, lines: int) -> None:
        """It was turned, down if ``lines`` is positive."""
        event.stop()
        pane = self._pane
        if not self._is_ours(event) and pane.pass_on(mouse_event(event)):
            return
        if pane.copy_mode is None and (lines > 0 or pane.lines.first_line >= pane.top):
            return
        mode = pane.copy_mode or pane.copying.begin(by_mouse=True)
        mode.scroll(lines)
        if mode.leaves_at_end and mode.is_at_end and lines > 0 and mode.selection is None:
            pane.copying.leave()
        else:
            pane.copying.changed()

    def _is_ours(self, event: events.MouseEvent) -> bool:
        return event.shift or self._pane.copy_mode is not None

    def _wants_it(self, event: events.Click) -> bool:
        """Whether clicks are the guest's."""
        return not self._is_ours(event) and self._pane.tracks_mouse

    def _position(self, x: int, y: int) -> Position:
        return Position(self._pane.top + y, x)

    def _stop_edge(self) -> None:
        if self._edge is not None:
            self._edge.stop()
            self._edge = None
