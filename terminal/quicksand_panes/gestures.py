"""Copying from a pane: copy mode as it begins, searches and ends, and the gestures of the mouse
that select, copy and scroll, where the guest does not get the mouse."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quicksand_vt import MouseAction, MouseButton, MouseEvent, MouseTracking, Position, line_at
from textual import events

from quicksand_panes.copy_mode import (
    HINT,
    CopyMode,
    Highlight,
    Selection,
    Shape,
    told_size,
)
from quicksand_panes.messages import PaneChanged, PaneCopied

if TYPE_CHECKING:
    from textual.timer import Timer
    from textual.widget import Widget

    from quicksand_panes.messages import Shown
    from quicksand_panes.terminal_link import Link

SEARCH_S: Final = 0.008
"""Seconds for which a search runs before the event loop continues."""


class Copying:
    """Begins and ends the copy mode of a pane, and runs its search."""

    def __init__(self, pane: Widget, shown: Shown) -> None:
        self._pane = pane
        self._shown = shown
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
        self._shown.redraw()
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
            self._shown.redraw()


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
        link: Link,
    ) -> None:
        self._pane = pane
        self._shown = shown
        self._copying = copying
        self._link = link
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

    def _pass_on(self, event: MouseEvent) -> bool:
        """Sends an event to the guest's program; returns False if that does not want it."""
        terminal = self._shown.terminal
        # A drag may go beyond the edges.
        x = min(max(event.x, 0), terminal.columns - 1)
        y = min(max(event.y, 0), terminal.rows - 1)
        data = terminal.encode_mouse(replace(event, x=x, y=y))
        self._link.report(data)
        return bool(data)

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
