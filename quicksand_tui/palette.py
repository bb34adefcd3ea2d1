"""What can be searched and typed: the palette, and the `:` line as the app opens it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand
from textual.screen import Screen

from quicksand_tui.actions import Scope, in_scope
from quicksand_tui.command_history import CommandHistory
from quicksand_tui.commands import Target, verbs_of
from quicksand_tui.orders import carry_out
from quicksand_tui.screens.base import ActionScreen
from quicksand_tui.screens.command import CommandScreen
from quicksand_tui.snapshot import Selection
from quicksand_tui.state_files import StateFile, state_dir

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp

HISTORY_FILE = "commands.json"


def _scope_of(screen: Screen[Any]) -> Scope:
    return screen.scope if isinstance(screen, ActionScreen) else Scope.MAIN


def open_command_line(app: QuicksandApp, line: str) -> None:
    """Ask for a command about what is selected on the screen that is shown."""
    screen = app.screen
    selection = screen.selection if isinstance(screen, ActionScreen) else Selection()

    def take(target: Target | None) -> None:
        if target is not None:
            carry_out(app, target, selection)

    asks = CommandScreen(
        app.snapshot,
        selection,
        verbs_of(_scope_of(screen)),
        themes=app.available_themes,
        history=CommandHistory(StateFile(state_dir() / HISTORY_FILE)),
        line=line,
        ascii_only=app.ascii,
    )
    app.push_screen(asks, take)


def palette_commands(app: QuicksandApp, screen: Screen[Any]) -> Iterable[SystemCommand]:
    """The registry's actions that are possible now, the themes, and the commands that take
    arguments."""
    if isinstance(screen, ActionScreen):
        yield from _actions(app, screen)
    yield SystemCommand("Theme", "Change the colours", app.action_change_theme)
    for verb in verbs_of(_scope_of(screen)).values():
        if verb.arguments:
            begin = partial(app.dialogs.open_command_line, f"{verb.name} ")
            yield SystemCommand(f":{verb.usage}", verb.about, begin)


def _actions(app: QuicksandApp, screen: ActionScreen) -> Iterator[SystemCommand]:
    snapshot, selection = app.snapshot, screen.selection
    for action in in_scope(screen.scope):
        if action.id != "escape" and action.disabled_reason(snapshot, selection) is None:
            key = snapshot.keymap.first_of(action)
            title = action.label.capitalize() + (f" ({key})" if key else "")
            yield SystemCommand(title, action.tooltip, partial(screen.action_do, action.id))
