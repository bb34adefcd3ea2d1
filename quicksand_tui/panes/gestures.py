"""Mouse gestures in a pane: select, copy and scroll, where the guest does not get the mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quicksand_vt import (
    MouseAction,
    MouseButton,
    MouseEvent,
    MouseTracking,
    Position,
    line_at,
)
from textual import events
from textual.timer import Timer

from quicksand_tui.panes.copy_mode import Selection, Shape

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.widget import Widget

    from quicksand_tui.panes.copy_mode import Copying
    from quicksand_tui.panes.messages import Shown


_BUTTONS = {1: MouseButton.LEFT, 2: MouseButton.MIDDLE, 3: MouseButton.RIGHT}


def mouse_event(event: events.MouseEvent) -> MouseEvent:
    action, button = MouseAction.PRESS, _BUTTONS.get(event.button, MouseButton.NONE)
    match event:
        case events.MouseScrollUp():
            button = MouseButton.WHEEL_UP
        case events.MouseScrollDown():
            button = MouseButton.WHEEL_DOWN
        case events.MouseMove():
            action = MouseAction.MOVE
        case events.MouseUp():
            action = MouseAction.RELEASE
    return MouseEvent(
        action=action,
        button=button,
        x=int(event.x),
        y=int(event.y),
        shift=event.shift,
        alt=event.meta,
        ctrl=event.ctrl,
    )


WHEEL_LINES: Final = 3
"""Lines per step of the wheel."""
EDGE_S: Final = 0.05
"""Seconds per line of scrolling while the mouse is dragged beyond the edge."""

LEFT_BUTTON: Final = 1


class Gestures:
    """Handles a pane's mouse events. A press decides where all events up to its release go: to the
    guest, if its program tracks the mouse, unless shift is held or copy mode is on."""

    def __init__(
        self,
        pane: Widget,
        shown: Shown,
        copying: Copying,
        pass_on: Callable[[MouseEvent], bool],
    ) -> None:
        """``pass_on`` sends an event to the guest's program; it returns False if the program does
        not want it."""
        self._pane = pane
        self._shown = shown
        self._copying = copying
        self._pass_on = pass_on
        self._anchor: Position | None = None
        """The position where the held button was pressed."""
        self._drags = False
        self._guest_holds = False
        """The guest was told of the press of the held button."""
        self._at = (0, 0)
        """The last position of the drag in the pane, perhaps beyond its edges."""
        self._edge: Timer | None = None

    def take(self, event: events.MouseEvent) -> None:
        """Handles a mouse event of the pane."""
        match event:
            case events.MouseDown():
                self.press(event)
            case events.MouseUp():
                self.release(event)
            case events.MouseMove():
                self.move(event)
            case events.Click():
                self.click(event)
            case events.MouseScrollUp():
                self.wheel(event, -WHEEL_LINES)
            case events.MouseScrollDown():
                self.wheel(event, WHEEL_LINES)

    def press(self, event: events.MouseDown) -> None:
        event.stop()
        if not self._is_ours(event) and self._pass_on(mouse_event(event)):
            self._guest_holds = True
            self._pane.capture_mouse()
            return
        if event.button != LEFT_BUTTON:
            return
        self._copying.clear_highlight()
        self._anchor, self._drags = self._position(int(event.x), int(event.y)), False
        if self._shown.copy_mode is not None:
            self._shown.copy_mode.point(self._anchor)
            self._copying.changed()
        self._pane.capture_mouse()

    def move(self, event: events.MouseMove) -> None:
        event.stop()
        if self._guest_holds or (self._anchor is None and not self._is_ours(event)):
            self._pass_on(mouse_event(event))
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
        """Selects up to the mouse; beyond the edge, scrolls."""
        if self._anchor is None:
            return
        mode = self._shown.copy_mode or self._copying.begin(by_mouse=True)
        mode.drag(self._anchor, self._position(*self._at), Shape.CHARACTERS)
        self._copying.changed()

    def release(self, event: events.MouseUp) -> None:
        """Handles a release, which copies the selection."""
        event.stop()
        if self._guest_holds:
            self._pass_on(mouse_event(event))
        drags = self._drags
        self.cancel()
        mode = self._shown.copy_mode
        if drags and mode is not None and mode.selection is not None:
            self._copying.take(mode.selection)

    def cancel(self) -> None:
        """Forgets a held button."""
        if self._anchor is not None or self._guest_holds:
            self._pane.release_mouse()
        self._anchor, self._drags, self._guest_holds = None, False, False
        self._stop_edge()

    def click(self, event: events.Click) -> None:
        """Selects a word on the second click, a line on the third."""
        event.stop()
        if event.button != LEFT_BUTTON or event.chain < 2 or self._wants_it(event):
            return
        lines = self._shown.lines
        position = self._position(int(event.x), int(event.y))
        if event.chain == 2:
            selection = Selection.of_word(lines, position)
        else:
            start, end = line_at(lines, position)
            selection = Selection(lines, start, end._replace(x=end.x - 1), Shape.LINES)
        if self._shown.copy_mode is not None:
            self._shown.copy_mode.select(selection)
        self._copying.take(selection)

    def wheel(self, event: events.MouseEvent, lines: int) -> None:
        """Handles the wheel: ``lines`` down if positive."""
        event.stop()
        if not self._is_ours(event) and self._pass_on(mouse_event(event)):
            return
        if self._shown.copy_mode is None and (
            lines > 0 or self._shown.lines.first_line >= self._shown.top
        ):
            return
        mode = self._shown.copy_mode or self._copying.begin(by_mouse=True)
        mode.scroll(lines)
        if mode.leaves_at_end and mode.is_at_end and lines > 0 and mode.selection is None:
            self._copying.leave()
        else:
            self._copying.changed()

    def _is_ours(self, event: events.MouseEvent) -> bool:
        return event.shift or self._shown.copy_mode is not None

    def _wants_it(self, event: events.Click) -> bool:
        """Whether the guest gets clicks."""
        return not self._is_ours(event) and self._tracks_mouse

    @property
    def _tracks_mouse(self) -> bool:
        """Whether the guest's program tracks the mouse."""
        return self._shown.terminal.modes.mouse_tracking is not MouseTracking.OFF

    def _position(self, x: int, y: int) -> Position:
        return Position(self._shown.top + y, x)

    def _stop_edge(self) -> None:
        if self._edge is not None:
            self._edge.stop()
            self._edge = None
