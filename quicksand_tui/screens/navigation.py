"""The part of the main screen where the user is, and the ways to other parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.home.state import NEEDS_NAME, SHAPE_NAME, kept_needs, kept_shape
from quicksand_tui.model.world import Panel
from quicksand_tui.views.main_layout import (
    LISTS_MIN,
    STEP,
    Part,
    Shape,
    Tab,
    needs_of,
    tabs_of,
    widened,
)
from quicksand_tui.views.tree_lines import tree_lines

if TYPE_CHECKING:
    from textual.widget import Widget

    from quicksand_tui.cockpit.cockpit import Cockpit
    from quicksand_tui.kit.key_handling import ActionScreen
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.model.shown_sandboxes import CheckpointTree, SandboxView
    from quicksand_tui.model.world import World

AREA_SCOPES = {
    Tab.SHELLS: Scope.PANES,
    Tab.LOG: Scope.LOG,
    Tab.MOUNTS: Scope.MOUNTS,
    Tab.DESKTOP: Scope.DESKTOP,
}
"""The scopes of the tabs that have keys of their own."""

CYCLE = (Part.LISTS, Part.TREE, Part.AREA)


class Places:
    """The parts of the main screen, of which one has the focus."""

    def __init__(self, screen: ActionScreen, cockpit: Cockpit, memory: Memory) -> None:
        self._screen = screen
        self._memory = memory
        self.cockpit = cockpit
        cockpit.when_dragged(self.give_first)
        self.lists = cockpit.lists
        self.checkpoints = cockpit.checkpoints
        self.area = cockpit.area
        self.came_from: Part | None = None
        """The part that the user left for the tree to choose a checkpoint; the choice leads back
        there."""
        self._tab_before = Tab.DETAILS
        """The tab of the main area at that time."""
        self._lines: dict[str, tuple[CheckpointTree, int]] = {}
        """The tree of each sandbox, and the number of its lines."""

    @property
    def part(self) -> Part:
        """The part that has the focus, or had it last."""
        return self.cockpit.focused_part

    @property
    def scope(self) -> Scope:
        """The scope whose keys come first."""
        if self.part is Part.TREE:
            return Scope.TREE
        if self.part is Part.AREA:
            return AREA_SCOPES.get(self.area.tab, Scope.MAIN)
        return Scope.MAIN

    @property
    def in_shells(self) -> bool:
        """Whether keys go to the shells."""
        return self.part is Part.AREA and self.area.tab is Tab.SHELLS

    @property
    def tree_is_tab(self) -> bool:
        """Whether the tree is a tab of the main area."""
        return self.cockpit.arrangement().tree_is_tab

    def rearrange(self, shape: Shape | None = None, focused: Part | None = None) -> None:
        """Lays out the parts; a new shape is remembered."""
        cockpit = self.cockpit
        cockpit.rearrange(shape or cockpit.shape, focused or cockpit.focused_part)
        places = cockpit.arrangement().places
        # A shell that fills the screen also gets the lines above and below.
        alone = cockpit.focused_part is Part.AREA and Part.LISTS not in places
        self._screen.set_class(alone and self.area.tab is Tab.SHELLS, "-shell-alone")
        if shape is not None:
            self._memory.remember(SHAPE_NAME, kept_shape(shape))

    def fit(self, listed: int, world: World) -> None:
        """Gives the parts the room that they can use: the list has ``listed`` lines."""
        if not world.sandboxes:
            return  # the room that the first sandbox needs is not known
        there = {view.id for view in world.sandboxes}
        self._lines = {id_: lines for id_, lines in self._lines.items() if id_ in there}
        needs = needs_of(world, listed, self._lines_of)
        cockpit = self.cockpit
        if needs != cockpit.needs:
            cockpit.rearrange(cockpit.shape, cockpit.focused_part, needs)
            self._memory.remember(NEEDS_NAME, kept_needs(needs))

    def _lines_of(self, view: SandboxView) -> int:
        known = self._lines.get(view.id)
        if known is None or known[0] is not view.tree:
            known = self._lines[view.id] = (view.tree, tree_lines(view.tree))
        return known[1]

    def follow_focus(self, widget: Widget) -> None:
        """Follows the focus, which the mouse may have moved."""
        part = self.cockpit.part_of(widget)
        if part is not self.part:
            self.came_from = None  # the mouse led elsewhere
            self.rearrange(focused=part)

    def go_to(self, part: Part) -> None:
        """Focuses a part; if the tree is a tab, it chooses that tab."""
        if part is Part.TREE and self.tree_is_tab:
            self._set_tab(Tab.TREE)
        if part is Part.AREA and self.area.tab is Tab.TREE:
            part = Part.TREE
        self.came_from = None
        # A hidden part must be shown before it can get the focus.
        self.rearrange(focused=part)
        if part is Part.LISTS:
            self._screen.set_focus(self.lists.browser.table)
        elif part is Part.TREE:
            self._screen.set_focus(self.checkpoints.table)
        elif not self.area.focus_tab():
            self.rearrange(focused=Part.LISTS)
            self._screen.set_focus(self.lists.browser.table)
        self._screen.show_selection()

    def show_sandbox(self, sandbox_id: str) -> None:
        """Puts the cursor on a sandbox, and drops a filter that hides it."""
        self.lists.choose(Panel.SANDBOXES)
        if not self.lists.sandboxes.table.select(sandbox_id):
            self.lists.sandboxes.filter_by("")
            self.lists.sandboxes.table.select(sandbox_id)
        self._screen.show_selection()

    def step(self, by: int) -> None:
        """Goes to the next part that can have the focus."""
        at = CYCLE.index(self.part)
        others = (CYCLE[(at + by * n) % len(CYCLE)] for n in range(1, len(CYCLE)))
        self.go_to(next((part for part in others if self._can_focus(part)), self.part))

    def _can_focus(self, part: Part) -> bool:
        if part is Part.TREE:
            # As a tab, the tree is reached through the main area.
            return not self.tree_is_tab or self.area.tab is Tab.TREE
        if part is Part.AREA:
            return self.area.tab is not Tab.TREE and self.area.can_focus_tab
        return True

    # To a checkpoint and back

    def choose_checkpoint(self) -> None:
        """Goes to the tree until a checkpoint is chosen there; the part beside shows what a revert
        to it means."""
        before, tab = self.part, self.area.tab
        if before is Part.TREE:
            return
        self.go_to(Part.TREE)
        if not self.tree_is_tab and tab is not Tab.DETAILS:
            self._set_tab(Tab.DETAILS)
            self._screen.show_selection()
        self.came_from, self._tab_before = before, tab

    def come_back(self) -> bool:
        """Goes back to the part from which the user came to choose a checkpoint; returns False if
        the user went to the tree for its own sake."""
        came_from = self.came_from
        if came_from is None:
            return False
        if came_from is Part.AREA or self._tab_before is not self.area.tab:
            self._set_tab(self._tab_before)
            self._screen.show_selection()  # a tab that shows nothing yet takes no focus
        self.go_to(came_from)
        return True

    # Tabs

    def choose_tab(self, tab: Tab) -> None:
        """Shows a tab of the main area; the focus moves only if it was in the previous tab."""
        tree_is_tab = self.tree_is_tab
        had_focus = self.part is Part.AREA or (self.part is Part.TREE and tree_is_tab)
        if tab is not Tab.TREE or tree_is_tab:
            self._set_tab(tab)
        if had_focus:
            self.go_to(Part.TREE if tab is Tab.TREE else Part.AREA)
        self._screen.show_selection()

    def leave_tab_of_others(self, sandbox: SandboxView | None) -> None:
        """Shows the overview in place of the desktop of a sandbox that has none."""
        if self.area.tab is Tab.DESKTOP and sandbox is not None and not sandbox.has_display:
            self._set_tab(Tab.DETAILS)

    def step_tab(self, by: int, sandbox: SandboxView | None) -> None:
        """Shows the next of the tabs that ``sandbox`` has."""
        tabs = tabs_of(
            self.area.tab,
            with_tree=self.tree_is_tab,
            with_desktop=sandbox is not None and sandbox.has_display,
        )
        at = tabs.index(self.area.tab) if self.area.tab in tabs else 0
        self.choose_tab(tabs[(at + by) % len(tabs)])

    def _set_tab(self, tab: Tab) -> None:
        self.area.choose(tab)
        self.rearrange(replace(self.cockpit.shape, tab=tab))

    # The shape

    def toggle_zoom(self) -> None:
        shape = replace(self.cockpit.shape, zoomed=not self.cockpit.shape.zoomed)
        if self.scope is Scope.PANES and (space := self.area.shells.workspace) is not None:
            # A pane may be zoomed while the cockpit is not, since the user left the shells.
            shape = replace(shape, zoomed=shape.zoomed and not space.zoomed)
            space.zoom(shape.zoomed)
        self.rearrange(shape)
        self._screen.show_selection()

    def zoom_shells(self) -> None:
        """Zooms the shells again."""
        if self.area.tab is Tab.SHELLS:
            self.rearrange(replace(self.cockpit.shape, zoomed=True), Part.AREA)

    def leave_zoom(self) -> None:
        """Shows all parts; a zoomed pane is zoomed again when the user comes back to the shells."""
        self.rearrange(replace(self.cockpit.shape, zoomed=False))

    def give_first(self, cells: int) -> None:
        """Gives the first column so many cells, as far as there is room."""
        shape = replace(self.cockpit.shape, lists=max(LISTS_MIN, cells))
        if shape != self.cockpit.shape:
            self.rearrange(shape)

    def widen(self, by: int) -> None:
        """Widens the focused column by ``by`` steps."""
        shape = widened(self.cockpit.shape, self.part, by * STEP, self._screen.size.width)
        self.rearrange(shape)
