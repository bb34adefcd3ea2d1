"""The stack of the app's screens, and the ways of keys among them: of those that come before their
widget is ready, behind a key that may end a widget, or that no widget takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quicksand_driver.textual_private import is_batching
from textual import events

from quicksand_tui.kit.base import AppScreen
from quicksand_tui.kit.key_handling import ActionScreen
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.views.main_layout import Part
from quicksand_tui.widgets.inputs import LineInput

if TYPE_CHECKING:
    from textual.app import App
    from textual.timer import Timer
    from textual.widget import Widget

    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.shown_sandboxes import SandboxView


HELD_S = 2.0
"""Seconds after which held keys go on in any case."""


class KeyRouting:
    """Sees every key twice: when it is read, and when no widget has taken it."""

    def __init__(self, app: App[int], stack: ScreenStack, keys: Keys) -> None:
        self._app = app
        self._stack = stack
        self._keys = keys
        self._held: list[events.Key] | None = None
        """Keys that were read behind one that may end an input; None if there is none on its
        way."""
        self._ending: LineInput | None = None
        """The input that the one before them may end."""
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
            self._held, self._ending = [], to
            self._patience = self._app.set_timer(HELD_S, self.settle)

    async def settled(self, field: LineInput) -> None:
        """Lets the held keys go on if they wait for that input."""
        if field is self._ending:
            await self.settle()

    async def settle(self) -> None:
        """Lets the held keys go on, in their order."""
        if self._patience is not None:
            self._patience.stop()
        held, self._held, self._patience, self._ending = self._held or [], None, None, None
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


class ScreenStack:
    """Finds the app's own screens among those that are open, and leads from one to another."""

    def __init__(self, app: App[int], present: Present) -> None:
        self._app = app
        self._present = present

    @property
    def main(self) -> MainScreen:
        screen = self._app.screen_stack[0]
        assert isinstance(screen, MainScreen)
        return screen

    @property
    def own(self) -> list[AppScreen[Any]]:
        """The app's own open screens; the palette is Textual's."""
        return [screen for screen in self._app.screen_stack if isinstance(screen, AppScreen)]

    @property
    def front(self) -> AppScreen[Any] | None:
        """The front screen, if it is the app's own. While the app ends there is none."""
        front = self._app.screen_stack[-1] if self._app.screen_stack else None
        return front if isinstance(front, AppScreen) else None

    @property
    def with_actions(self) -> ActionScreen | None:
        """The front screen, if its keys are actions of the registry."""
        return self.front if isinstance(self.front, ActionScreen) else None

    @property
    def selection(self) -> Selection:
        """The selection of the front screen."""
        screen = self.with_actions
        return screen.selection if screen is not None else Selection()

    def go_to_main(self) -> None:
        while self._app.screen is not self.main:
            self._app.pop_screen()

    def open_tree(self, sandbox: SandboxView) -> None:
        """Goes to the checkpoints of a sandbox."""
        self.go_to_main()
        self.main.show_sandbox(sandbox.id)
        self.main.places.go_to(Part.TREE)

    def show(self) -> None:
        """Shows the present world on all of them, unless a shell has the terminal."""
        if not self._app.is_running or is_batching(self._app):
            return
        world = self._present.world
        for screen in self.own:
            screen.update_world(world)

    @property
    def shows_saves(self) -> bool:
        """Whether any of them shows saves."""
        return any(screen.shows_saves for screen in self.own)

    @property
    def visible_sandboxes(self) -> frozenset[str]:
        """Ids of the sandboxes with a visible use of the CPU. While a shell has the terminal,
        nothing is shown."""
        return frozenset().union(*(screen.visible_sandboxes for screen in self.own))

    @property
    def sandboxes_with_network(self) -> frozenset[str]:
        """Ids of the sandboxes with a visible network."""
        network = self.main.sandboxes_with_network
        return frozenset() if is_batching(self._app) else network

    def filter_by(self, words: str) -> None:
        """Filters the list of the front screen, or the main screen's if that has none."""
        if self.front is None or not self.front.filter_by(words):
            self.go_to_main()
            self.main.filter_by(words)
