"""Places panes as the tree of a workspace says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.geometry import Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from textual.widget import Widget

    from quicksand_tui.model.geometry import Rect


class PanePlaces(Layout):
    """Gives each pane its rectangle, below the row of its title."""

    name = "panes"

    def __init__(self, places: Callable[[Size], Mapping[str, Rect]]) -> None:
        """``places`` returns the rectangles by the panes' ids, with the rows of their titles."""
        self._places = places

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        places = self._places(size)
        found = []
        for child in children:
            place = places.get(child.id or "")
            region = Region(0, 0, 0, 0) if place is None else _below_title(place)
            found.append(WidgetPlacement(region, Offset(0, 0), child.styles.margin, child))
        return found


def _below_title(place: Rect) -> Region:
    return Region(place.x, place.y + 1, place.width, max(0, place.height - 1))
