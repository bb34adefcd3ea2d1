"""The tabs of the area, each imported when it is first shown (PEP 562), after the first paint."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_tui.cockpit.checkpoint_previews import Choice, ThenAndNow
    from quicksand_tui.cockpit.desktop_tab import DesktopPanel
    from quicksand_tui.cockpit.desktop_view import Miniature
    from quicksand_tui.cockpit.log import LogPanel
    from quicksand_tui.cockpit.mounts_tab import MountsPanel
    from quicksand_tui.cockpit.shells_tab import Shells
    from quicksand_tui.cockpit.stats_tab import StatsPanel
else:
    __getattr__, __dir__ = on_demand()
