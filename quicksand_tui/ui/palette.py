"""The entries of the palette."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from textual.app import SystemCommand

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.actions.line import verbs_of
from quicksand_tui.kit.base import ActionScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from textual.screen import Screen

    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.world import World


def palette_commands(
    screen: Screen[Any],
    world: World,
    keys: Keys,
    *,
    change_theme: Callable[[], None],
    open_line: Callable[[str], None],
) -> Iterator[SystemCommand]:
    """Yields the actions with their keys, each with the reason if it is not possible now; the
    themes; and the commands with arguments."""
    if isinstance(screen, ActionScreen):
        yield from _actions(screen, world, keys)
    yield SystemCommand("Theme", "Change the colours", change_theme)
    scope = screen.scope if isinstance(screen, ActionScreen) else Scope.MAIN
    for verb in verbs_of(scope).values():
        if verb.arguments:
            yield SystemCommand(f":{verb.usage}", verb.about, partial(open_line, f"{verb.name} "))


def _actions(screen: ActionScreen, world: World, keys: Keys) -> Iterator[SystemCommand]:
    possible, others = [], []
    for action in in_scope(screen.scope):
        if action.id == "escape":
            continue
        key = world.keymap.first_of(action)
        title = action.label.capitalize() + (f" ({key})" if key else "")
        do = partial(_do, keys, screen, action.id)
        if (reason := action.disabled_reason(world, screen.selection)) is None:
            possible.append(SystemCommand(title, action.tooltip, do))
        else:
            others.append(SystemCommand(title, f"Not now: {reason}", do))
    yield from (*possible, *others)


def _do(keys: Keys, screen: ActionScreen, action_id: str) -> None:
    keys.hands.meant()
    screen.action_do(action_id)
