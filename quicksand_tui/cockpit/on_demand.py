"""The tabs of the area, each imported when it is first shown (PEP 562), after the first paint."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quicksand_tui.cockpit.choice import Choice
    from quicksand_tui.cockpit.desktop import DesktopPanel
    from quicksand_tui.cockpit.log import LogPanel
    from quicksand_tui.cockpit.miniature import Miniature
    from quicksand_tui.cockpit.mounts import MountsPanel
    from quicksand_tui.cockpit.shells import Shells
    from quicksand_tui.cockpit.stats import StatsPanel
    from quicksand_tui.cockpit.then_and_now import ThenAndNow

__all__ = [
    "Choice",
    "DesktopPanel",
    "LogPanel",
    "Miniature",
    "MountsPanel",
    "Shells",
    "StatsPanel",
    "ThenAndNow",
]

_HOMES = {
    "cockpit.choice": ("Choice",),
    "cockpit.desktop": ("DesktopPanel",),
    "cockpit.log": ("LogPanel",),
    "cockpit.miniature": ("Miniature",),
    "cockpit.mounts": ("MountsPanel",),
    "cockpit.shells": ("Shells",),
    "cockpit.stats": ("StatsPanel",),
    "cockpit.then_and_now": ("ThenAndNow",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"quicksand_tui.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
