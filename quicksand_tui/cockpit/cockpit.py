"""The main screen's parts, laid out for the terminal's size and the user's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Offset, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from quicksand_tui.cockpit.part import Join
from quicksand_tui.views.main_layout import (
    Arrangement,
    Edge,
    Needs,
    Part,
    Shape,
    arrange,
    rows_left,
)
from quicksand_tui.widgets.browser import Browser
from quicksand_tui.widgets.details import Happened

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.app import ComposeResult

    from quicksand_tui.cockpit.area import Area
    from quicksand_tui.cockpit.lists import Lists
    from quicksand_tui.cockpit.tree_panel import TreePanel
    from quicksand_tui.model.shown_sandboxes import Known, SandboxView
    from quicksand_tui.model.world import World


LAYERS = {Part.LISTS: 0, Part.TREE: 1, Part.AREA: 2, Part.ASIDE: 0}
TOPMOST = 3
LEFT_BUTTON = 1


class _Places(Layout):
    """Places the parts as `views.main_layout` arranges them."""

    name = "cockpit"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Cockpit)
        arrangement = parent.arrangement(size)
        places = arrangement.places
        found = []
        for child in children:
            place = places.get(parent.part_of(child))
            region = Region(0, 0, 0, 0) if place is None else Region(*place)
            # Of two parts one above the other, the lower one draws the line that they share; as a
            # tab, the tree lies over the main area.
            order = LAYERS[parent.part_of(child)]
            if child is parent.checkpoints and arrangement.tree_is_tab:
                order = TOPMOST
            found.append(
                WidgetPlacement(region, Offset(0, 0), child.styles.margin, child, order=order)
            )
        return found


class Cockpit(Widget):
    """The lists, the tree, the main area, and the column beside it."""

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
        self._drags = False
        """The line beside the first column follows the mouse."""
        self._drag_to: int | None = None
        self._give_first: Callable[[int], None] | None = None
        checkpoints.joins(self._join_tree)

    def compose(self) -> ComposeResult:
        yield self.lists
        yield self.checkpoints
        yield self.area
        yield self.aside

    def when_dragged(self, give_first: Callable[[int], None]) -> None:
        """Has ``give_first`` called to give the first column so many cells."""
        self._give_first = give_first

    def on_mouse_down(self, event: events.MouseDown) -> None:
        area = self.arrangement().places.get(Part.AREA)
        column = event.screen_x - self.region.x
        if event.button == LEFT_BUTTON and area is not None and 0 < area.x == column + 1:
            self._drags = True
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if not self._drags:
            return
        # Moves that come while the parts are laid out count as one.
        if self._drag_to is None:
            self.call_later(self._drag)
        self._drag_to = int(event.screen_x - self.region.x) + 1

    def _drag(self) -> None:
        to, self._drag_to = self._drag_to, None
        if to is not None and self._give_first is not None:
            self._give_first(to)

    def on_mouse_up(self) -> None:
        if self._drags:
            self._drag()
            self._drags = False
            self.release_mouse()

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
        """Returns its size to come: the contents of the first frame are made before its layout."""
        return Size(self.app.size.width, rows_left(self.app.size.height))

    def edge(self, part: Part) -> Edge:
        """Returns the look of the first line of a part."""
        above = self.arrangement().above(part)
        return Edge(
            joined=above is not None,
            lit=self.focused_part is part,
            above_lit=above is not None and self.focused_part is above,
        )

    def _join_tree(self) -> Join:
        """Returns how the tree meets the list above. It shows the list's words, or else, if its own
        last line is hidden, the words that would stand there."""
        edge, list_ = self.edge(Part.TREE), self.lists.browser
        if not edge.joined:
            return Join(edge=edge)
        if words := str(list_.border_subtitle or ""):
            return Join(edge=edge, above=list_, words=words, urgent=list_.urgent)
        hides = self.arrangement().above(Part.AREA) is Part.TREE
        words = str(self.checkpoints.border_subtitle or "") if hides else ""
        return Join(edge=edge, above=list_, words=words)

    def show_bar(self, sandbox: SandboxView | None, *, typing: bool) -> None:
        """Shows the line of tabs; with ``typing``, keys go to a shell."""
        self.area.show_bar(
            sandbox,
            self.edge(Part.AREA),
            said=self._said_above_area,
            with_tree=self.arrangement().tree_is_tab,
            typing=typing,
        )

    @property
    def _said_above_area(self) -> str:
        """The words that the list above the area shows besides its keys, where its last line is
        hidden by the line of tabs."""
        list_ = self.lists.browser
        is_list = self.arrangement().above(Part.AREA) is Part.LISTS
        return str(list_.border_subtitle or "") if is_list and list_.urgent else ""

    @on(Browser.FrameChanged)
    def _frame_changed(self, event: Browser.FrameChanged) -> None:
        event.stop()
        self.checkpoints.join_changed()

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
        self.checkpoints.join_changed()


class Aside(Vertical):
    """Shows facts that do not change with the tab. It takes no focus."""

    def __init__(self, *, ascii_only: bool, **options: Any) -> None:
        super().__init__(**options)
        self.happened = Happened(ascii_only=ascii_only, id="happened")

    def compose(self) -> ComposeResult:
        yield self.happened

    def show(self, world: World, sandbox: SandboxView | None, known: Known) -> None:
        self.happened.show(world, sandbox, known)
