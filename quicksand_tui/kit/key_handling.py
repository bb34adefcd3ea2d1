"""The keys of the app: their names, whether they were meant, and which widget gets them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.kit.deliberate_keys import Burst, Hands
from quicksand_tui.kit.pane_keys import PaneKeys
from quicksand_tui.kit.toasts import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from quicksand_tui.actions.all_actions import Action
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.model.keymap import Keymap, Prefix
    from quicksand_tui.model.world import Selection, World


class Keys:
    """Refuses keys that belong to a text; ``panes`` types the others into guests."""

    def __init__(self, app: App[int], settings: Settings, hands: Hands | None = None) -> None:
        self._app = app
        self._settings = settings
        self.hands = hands or Hands(app.set_timer)
        self.panes = PaneKeys(app, self.hands)

    @property
    def map(self) -> Keymap:
        """The key of each action, as the config has it now."""
        return self._settings.keymap

    @property
    def here(self) -> Keymap:
        """The same, with hints for the focused part: a key named in a message must work."""
        screen = self._app.screen if self._app.screen_stack else None
        scope = getattr(screen, "help_scope", None)
        return self.map if scope is None else self.map.seen_from(scope.value)

    def why_not(self, action: Action, world: World, selection: Selection) -> str | None:
        """Returns why an action is not possible now, naming keys that work here; None if it is."""
        return action.disabled_reason(replace(world, keymap=self.here), selection)

    @property
    def prefix(self) -> Prefix:
        """The prefix key of the panes."""
        return self.map.prefix

    def refuse_text(self, action: Action) -> bool:
        """Whether the key that is handled belongs to text that nothing here takes; tells the user
        once. The line or shell that ``action`` opens takes a text that begins with its key; several
        lines are meant for no shell that is still to be opened."""
        press = self.hands.press
        burst = press.burst
        if action.takes_text and burst.opened.intersection(self.map.keys_of(action)):
            return False
        if action.takes_keys and press.is_first and not burst.has_more_lines:
            return False
        if press.is_text:
            self._tell_text(burst)
        return press.is_text

    def carefully(self, act: Callable[[], None]) -> None:
        """Calls ``act`` once it is certain that the last key belongs to no text; else tells the
        user."""
        self.hands.carefully(act, self._tell_text)

    def _tell_text(self, burst: Burst) -> None:
        """Tells the user, once per burst, that keys were ignored as text."""
        if not burst.told:
            burst.told = True
            here = self.here
            tell(
                self._app,
                "That was typed text: here letters are keys, so nothing was done. "
                f"{here.hint('shell')} opens a shell, {here.hint('command')} types a command",
                severity="warning",
            )
