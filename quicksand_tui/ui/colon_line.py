"""Opens the `:` line. Its modules are imported on first use, since the first paint needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.home.state import CommandHistory, StateFile, state_dir
from quicksand_tui.ui import lazy_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import App

    from quicksand_tui.actions.line import Target
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.model.world import World
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.ui.stack import ScreenStack


HISTORY_FILE = "commands.json"


class ColonLine:
    """Asks for a command, and has it carried out."""

    def __init__(
        self,
        app: App[int],
        stack: ScreenStack,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        memory: Memory,
        *,
        world: Callable[[], World],
        ascii_only: bool,
    ) -> None:
        self._app = app
        self._stack = stack
        self._operations = operations
        self._dialogs = dialogs
        self._keys = keys
        self._memory = memory
        self._world = world
        self._ascii = ascii_only

    def open(self, line: str = "") -> None:
        """Opens the line for the selection of the front screen, with ``line`` in it."""
        screen, selection = self._stack.with_actions, self._stack.selection
        orders = lazy_parts.Orders(
            self._app, self._stack, self._operations, self._dialogs, self._keys
        )

        def take(target: Target | None) -> None:
            if target is not None:
                orders.carry_out(target, selection)

        asks = lazy_parts.CommandScreen(
            self._world(),
            selection,
            lazy_parts.verbs_of(screen.scope if screen is not None else Scope.MAIN),
            self._memory,
            themes=self._app.available_themes,
            history=CommandHistory(StateFile(state_dir() / HISTORY_FILE)),
            line=line,
            ascii_only=self._ascii,
        )
        self._app.push_screen(asks, take)
