"""The stack of the app's screens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from quicksand_tui.kit.base import ActionScreen, AppScreen
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.main_screen import MainScreen
from quicksand_tui.views.main_layout import Part

if TYPE_CHECKING:
    from textual.app import App

    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.specs import NewSpec


class ScreenStack:
    """Finds the app's own screens among those that are open, and leads from one to another."""

    def __init__(self, app: App[int]) -> None:
        self._app = app

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

    def create(self, spec: NewSpec) -> None:
        """Starts a new sandbox, and shows it on the main screen."""
        self.go_to_main()
        self.main.create(spec)

    def filter_by(self, words: str) -> None:
        """Filters the list of the front screen, or the main screen's if that has none."""
        if self.front is None or not self.front.filter_by(words):
            self.go_to_main()
            self.main.filter_by(words)
