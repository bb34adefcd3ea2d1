"""Sandboxes of other machines: their modules are imported when the first of them is used (PEP
562)."""

from typing import TYPE_CHECKING

from quicksand.base.on_demand import on_demand

if TYPE_CHECKING:
    from quicksand_tui.door.far_sandbox import open_there
    from quicksand_tui.door.far_screen import ScreenThere
    from quicksand_tui.door.far_verbs import carry_out_there
else:
    __getattr__, __dir__ = on_demand()
