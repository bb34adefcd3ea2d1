"""The ways of keys that come before their widget is ready, behind a key that may end a widget, or
that no widget takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import events

from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from textual.app import App
    from textual.timer import Timer
    from textual.widget import Widget

    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.ui.stack import ScreenStack


HELD_S = 2.0
"""Seconds after which held keys go on in any case: the input may have been removed meanwhile."""


class KeyRouting:
    """Sees every key twice: when it is read, and when no widget has taken it."""

    def __init__(self, app: App[int], stack: ScreenStack, keys: Keys) -> None:
        self._app = app
        self._stack = stack
        self._keys = keys
        self._held: list[events.Key] | None = None
        """Keys that were read behind one that may end an input; None if there is none on its
        way."""
        self._patience: Timer | None = None

    def drops(self, event: events.Key) -> bool:
        """Notes the timing of a key that was just read, before anything else sees it; returns
        whether it goes nowhere now: it is held, or the front screen wants it ignored."""
        if self._held is not None:
            self._held.append(event)
            return True
        self._keys.hands.note(event)
        front = self._stack.front
        return front is not None and front.drops_key(event)

    def sent(self, event: events.Key, to: Widget | None) -> None:
        """Holds the keys behind one that was sent to an input which it may end: they are for
        whatever has the focus then."""
        if event.is_forwarded and isinstance(to, LineInput) and event.key in to.ENDING:
            self._held = []
            self._patience = self._app.set_timer(HELD_S, self.settle)

    async def settle(self) -> None:
        """Lets the held keys go on, in their order."""
        if self._patience is not None:
            self._patience.stop()
        held, self._held, self._patience = self._held or [], None, None
        for key in held:
            await self._app.on_event(key)

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
