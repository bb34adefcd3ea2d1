"""The main screen's shape, kept from one run to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from quicksand_tui.cockpit.layout import Shape, Tab

if TYPE_CHECKING:
    from quicksand_tui.remembered import Remembered

NAME = "layout"
"""As `Remembered` has it."""
CELLS_MAX = 1000


def recall_shape(remembered: Remembered) -> Shape:
    """As it was left; the usual one where that makes no sense."""
    kept = remembered.get(NAME)
    if not isinstance(kept, dict):
        return Shape()
    tab = kept.get("tab")
    return Shape(
        lists=_cells(kept.get("lists")),
        tree=_cells(kept.get("tree")),
        # A shell is opened by who wants one.
        tab=Tab(tab) if tab in (Tab.TREE, Tab.DETAILS, Tab.LOG, Tab.STATS) else Tab.DETAILS,
    )


def kept_of(shape: Shape) -> dict[str, object]:
    """What of it is remembered."""
    return {"lists": shape.lists, "tree": shape.tree, "tab": shape.tab.value}


def _cells(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= CELLS_MAX else 0
