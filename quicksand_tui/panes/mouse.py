"""Textual's events of the mouse as a terminal's."""

from __future__ import annotations

from textual import events

from quicksand_tui.terminal import MouseAction, MouseButton, MouseEvent

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
