"""The config that `config example` prints: all settings and keys at their defaults."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from quicksand_tui.actions.all_actions import Action, Scope, in_scope
from quicksand_tui.home.config_file import SETTINGS
from quicksand_tui.model.keymap import key_text

WIDTH = 90
SCREENS = {
    Scope.MAIN: "The main screen",
    Scope.LOG: "A log",
    Scope.TREE: "The tree of checkpoints",
    Scope.DIFF: "What differs between two checkpoints",
    Scope.MOUNTS: "The mounts",
    Scope.SAVES: "The saves",
    Scope.TRASH: "The trash",
    Scope.WALL: "The wall",
    Scope.PANES: "Shells, behind the prefix",
    Scope.DESKTOP: "The desktop, behind the prefix",
}


def example_config() -> str:
    """Returns a config with all settings and keys at their defaults, each in a comment."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# The config of quicksand-tui. Take the # from what you want otherwise;"
    yield "# `quicksand-tui config check` says what is wrong with it."
    for setting in SETTINGS:
        later = "" if setting.live else " Takes effect at the next start."
        yield ""
        yield from textwrap.wrap(
            setting.about + later, WIDTH, initial_indent="# ", subsequent_indent="# "
        )
        yield f"# {setting.name} = {setting.example}"
    yield ""
    yield "[keys]"
    yield '# A key, a list of keys, or "" for none; `quicksand-tui config keys` tells what keys are'
    yield "# called. Without the screen in front it counts on every screen that has such an action:"
    yield '# help = ["?", "f1"]'
    for scope, title in SCREENS.items():
        yield ""
        yield f"# {title}"
        for action in in_scope(scope):
            yield f"# {action.address} = {_keys(action)}  # {action.tooltip}"


def _keys(action: Action) -> str:
    keys = ["'\"'" if key == "quotation_mark" else f'"{key_text(key)}"' for key in action.keys]
    return keys[0] if len(keys) == 1 else f"[{', '.join(keys)}]"
