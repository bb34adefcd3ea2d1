"""The main screen's parts, laid out for the terminal's size and the user's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual.app import ComposeResult
from textual.geometry import Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from quicksand_tui.views.layout import Arrangement, Needs, Part, Shape, arrange, rows_left

if TYPE_CHECKING:
    from quicksand_tui.cockpit.area import Area
    from quicksand_tui.cockpit.aside import Aside
    from quicksand_tui.cockpit.lists import Lists
    from quicksand_tui.cockpit.tree import TreePanel


class _Places(Layout):
    """Places the parts as `views.layout` arranges them."""

    name = "cockpit"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Cockpit)
        places = parent.arrangement(size).places
        found = []
        for child in children:
            place = places.get(parent.part_of(child))
            region = Region(0, 0, 0, 0) if place is None else Region(*place)
            # The tree may lie over the main area.
            order = 1 if child is parent.checkpoints else 0
            found.append(
                WidgetPlacement(region, Offset(0, 0), child.styles.margin, child, order=order)
            )
        return found


class Cockpit(Widget):
    """The lists, the tree, the main area, and what goes on beside it."""

    def __init__(
        self,
        lists: Lists,
        checkpoints: TreePanel,
        area: Area,
        aside: Aside,
        shape: Shape,
        needs: Needs,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.lists = lists
        self.checkpoints = checkpoints
        self.area = area
        self.aside = aside
        self.shape = shape
        self.needs = needs
        self.focused_part = Part.LISTS

    def compose(self) -> ComposeResult:
        yield self.lists
        yield self.checkpoints
        yield self.area
        yield self.aside

    @property
    def layout(self) -> Layout:
        return _Places()

    def part_of(self, widget: Widget) -> Part:
        """Returns the part that a widget is or belongs to."""
        for part, whole in (
            (Part.TREE, self.checkpoints),
            (Part.AREA, self.area),
            (Part.ASIDE, self.aside),
        ):
            if widget is whole or whole in widget.ancestors:
                return part
        return Part.LISTS

    def arrangement(self, size: Size | None = None) -> Arrangement:
        width, height = size or self.size or self._expected()
        return arrange(width, height, self.shape, self.focused_part, self.needs)

    def _expected(self) -> Size:
        """The size that it will have: what the first frame shows is made before its layout."""
        return Size(self.app.size.width, rows_left(self.app.size.height))

    @property
    def has_aside(self) -> bool:
        return Part.ASIDE in self.arrangement().places

    def rearrange(self, shape: Shape, focused: Part, needs: Needs | None = None) -> None:
        """Lays out anew; draws nothing if nothing moves."""
        before = self.arrangement()
        self.shape, self.focused_part, self.needs = shape, focused, needs or self.needs
        if self.arrangement() != before:
            # Textual drops its cached placement of the children only when a child asks for it.
            for part in (self.lists, self.checkpoints, self.area, self.aside):
                part.refresh(layout=True)
            self.refresh(layout=True)
