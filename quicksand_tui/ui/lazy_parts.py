"""Names of all that the app opens when it is asked to, each imported then (PEP 562), after the
first paint."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_tui.actions.line import verbs_of
    from quicksand_tui.screens.command_line import CommandScreen
    from quicksand_tui.screens.saves_and_trash import SavesScreen, TrashScreen
    from quicksand_tui.screens.wall_screen import WallScreen
    from quicksand_tui.ui.line_orders import Orders, palette_commands
    from quicksand_tui.ui.load_rest import stay_fit
else:
    __getattr__, __dir__ = on_demand()
