"""The entries of the palette, and the opening of the `:` line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.screen import Screen

from quicksand_tui.actions.line import (
    Target,
    verbs_of,
)
from quicksand_tui.actions.registry import Scope, in_scope
from quicksand_tui.home.state import CommandHistory, StateFile, state_dir
from quicksand_tui.model.world import Selection
from quicksand_tui.screens.base import ActionScreen
from quicksand_tui.screens.command import CommandScreen
from quicksand_tui.ui.orders import carry_out

if TYPE_CHECKING:
    from quicksand_tui.ui.host import Host


HISTORY_FILE = "commands.json"


def _scope_of(screen: Screen[Any]) -> Scope:
    return screen.scope if isinstance(screen, ActionScreen) else Scope.MAIN


def open_command_line(app: Host, line: str) -> None:
    """Opens the `:` line for the selection of the present screen."""
    screen = app.screen
    selection = screen.selection if isinstance(screen, ActionScreen) else Selection()

    def take(target: Target | None) -> None:
        if target is not None:
            carry_out(app, target, selection)

    asks = CommandScreen(
        app.world,
        selection,
        verbs_of(_scope_of(screen)),
        themes=app.available_themes,
        history=CommandHistory(StateFile(state_dir() / HISTORY_FILE)),
        line=line,
        ascii_only=app.ascii,
    )
    app.push_screen(asks, take)


def palette_commands(app: Host, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """Yields the actions that are possible now, the themes, and the commands with arguments."""
    if isinstance(screen, ActionScreen):
        yield from _actions(app, screen)
    yield SystemCommand("Theme", "Change the colours", app.action_change_theme)
    for verb in verbs_of(_scope_of(screen)).values():
        if verb.arguments:
            begin = partial(app.dialogs.open_command_line, f"{verb.name} ")
            yield SystemCommand(f":{verb.usage}", verb.about, begin)


def _do(app: Host, screen: ActionScreen, action_id: str) -> None:
    app.hands.meant()
    screen.action_do(action_id)


def _actions(app: Host, screen: ActionScreen) -> Iterator[SystemCommand]:
    world, selection = app.world, screen.selection
    for action in in_scope(screen.scope):
        if action.id != "escape" and action.disabled_reason(world, selection) is None:
            key = world.keymap.first_of(action)
            title = action.label.capitalize() + (f" ({key})" if key else "")
            yield SystemCommand(title, action.tooltip, partial(_do, app, screen, action.id))
