"""The ways of keys that come before their widget is ready, or that no widget takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events

from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from textual.app import App

    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.ui.stack import ScreenStack


class KeyRouting:
    """Sees every key twice: when it is read, and when no widget has taken it."""

    def __init__(self, app: App[int], stack: ScreenStack, keys: Keys) -> None:
        self._app = app
        self._stack = stack
        self._keys = keys

    def drops(self, event: events.Key) -> bool:
        """Notes the timing of a key that was just read, before anything else sees it; returns
        whether the front screen wants it ignored."""
        self._keys.hands.note(event)
        front = self._stack.front
        return front is not None and front.drops_key(event)

    def route(self, event: events.Key) -> None:
        """Passes on keys that were typed after one that opens a form, a filter, the command line or
        a shell, but were sent to the widget with the focus before. A dialog answers keys that it
        does not know."""
        if not self._app.screen_stack:
            event.prevent_default()  # the app ends, and Textual would look for a screen
            return
        self._keys.hands.handle(event)
        screen, focused = self._stack.front, self._app.focused
        if screen is not None and (taken := screen.take_key(event)) is not None:
            if taken:
                event.prevent_default()
            return
        if screen is not None and screen.take_early(event):
            pass
        elif isinstance(focused, LineInput) and focused.takes(event):
            focused.post_message(events.Key(event.key, event.character))
        else:
            if screen is not None:
                screen.answer(event)
            return
        event.stop()
        event.prevent_default()
