"""What the app opens when it is asked to, each imported then (PEP 562), after the first paint."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand_tui.actions.line import verbs_of
    from quicksand_tui.screens.command import CommandScreen
    from quicksand_tui.screens.saves import SavesScreen, TrashScreen
    from quicksand_tui.screens.wall import WallScreen
    from quicksand_tui.ui.orders import Orders
    from quicksand_tui.ui.palette import palette_commands

__all__ = [
    "CommandScreen",
    "Orders",
    "SavesScreen",
    "TrashScreen",
    "WallScreen",
    "palette_commands",
    "verbs_of",
]

_HOMES = {
    "actions.line": ("verbs_of",),
    "screens.command": ("CommandScreen",),
    "screens.saves": (
        "SavesScreen",
        "TrashScreen",
    ),
    "screens.wall": ("WallScreen",),
    "ui.orders": ("Orders",),
    "ui.palette": ("palette_commands",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"quicksand_tui.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
