"""The main screen: lists, the tree of checkpoints, and the main area with its tabs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from quicksand.things.status import Status
from quicksand_panes.messages import PaneChanged
from textual import events, on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions.all_actions import PREFIXED, Group, Scope, find_action, in_scope
from quicksand_tui.actions.hints import LISTS, hint_for
from quicksand_tui.cockpit.cockpit import Aside, Cockpit
from quicksand_tui.cockpit.lists import Lists
from quicksand_tui.cockpit.part import (
    Asked,
    DesktopChanged,
    KnownChanged,
    MountMoved,
    ShellsLeft,
    ShellsZoomed,
)
from quicksand_tui.cockpit.tree_panel import TreePanel
from quicksand_tui.home.state import recall_needs, recall_shape
from quicksand_tui.kit.base import SavesShown, tell
from quicksand_tui.kit.first_list import TOP_USED
from quicksand_tui.kit.key_handling import ActionScreen, bindings_of
from quicksand_tui.kit.outline import BRAND
from quicksand_tui.model.text import plain
from quicksand_tui.model.world import MACHINE_KEY, Panel, Selection, World
from quicksand_tui.screens.main_actions import MainActions, TreeActions, Ways
from quicksand_tui.screens.navigation import Places
from quicksand_tui.views.counts import top_texts
from quicksand_tui.views.main_layout import COMMAND_LINE_FROM, Part, Tab
from quicksand_tui.views.sandbox_rows import NETWORK_COLUMN
from quicksand_tui.widgets.bars import ActionBar, CommandLine
from quicksand_tui.widgets.browser import Browser

if TYPE_CHECKING:
    from collections.abc import Iterator

    from textual.app import ComposeResult
    from textual.widget import Widget

    from quicksand_tui.actions.all_actions import Action, Doer
    from quicksand_tui.cockpit.area import Area
    from quicksand_tui.cockpit.present_world import Present
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.model.jobs import CommandRecord
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.specs import NewSpec
    from quicksand_tui.model.wall_plan import TileKey
    from quicksand_tui.screens.dialogs import Dialogs
    from quicksand_tui.screens.terminal_loan import FullShell

MARKING = frozenset({"mark", "mark_all", "mark_range"})
"""Actions that do nothing with the sandbox under the cursor."""


class MainScreen(ActionScreen):
    """Shows the world. Its keys are the actions of `Scope.MAIN`; its parts add their own."""

    scope = Scope.MAIN
    VERTICAL_BREAKPOINTS = [(0, "-low"), (COMMAND_LINE_FROM, "-usual")]  # noqa: RUF012 - declared by Textual
    AUTO_FOCUS = "#sandboxes LongTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of(in_scope(Scope.MAIN)),
        Binding("tab", "step_part(1)", show=False),
        Binding("shift+tab", "step_part(-1)", show=False),
        *(
            Binding(str(n), f"panel('{panel.value}')", show=False)
            for n, panel in enumerate(Panel, 1)
        ),
        Binding("4", "part('tree')", show=False),
        Binding("5", "part('area')", show=False),
    ]

    def __init__(
        self,
        present: Present,
        area: Area,
        operations: Operations,
        dialogs: Dialogs,
        keys: Keys,
        terminal: OuterTerminal,
        memory: Memory,
        full_shell: FullShell,
        *,
        everywhere: Doer,
        rows: int,
        ascii_only: bool,
    ) -> None:
        """``rows`` is the height of the terminal."""
        # The class that Textual sets later: a change then would move the first frame.
        classes = "-usual" if rows >= COMMAND_LINE_FROM else "-low"
        super().__init__(keys, everywhere, classes=classes)
        self._present = present
        self.world = present.world
        self._terminal = terminal
        self._full_shell = full_shell
        self._ascii = ascii_only
        self._aim: Selection | None = None
        """The target of the present action, if that is not the selection."""
        # Kept rather than queried: a world may come while the screen is being removed.
        self._counts = Static(id="counts", markup=False)
        self._host = Static(id="host", markup=False)
        self._top = ("", "")
        self._was_in_front = False
        self._command_line = CommandLine(
            LISTS[Panel.SANDBOXES], ascii_only=ascii_only, id="command-line"
        )
        self._actions = ActionBar(Scope.MAIN, id="actions")
        self.lists = Lists(ascii_only=ascii_only, is_empty=not self.world.sandboxes, id="lists")
        self.checkpoints = TreePanel(ascii_only=ascii_only, id="checkpoints")
        self.area = area
        self.aside = Aside(ascii_only=ascii_only, id="aside")
        shape, needs = recall_shape(memory.remembered), recall_needs(memory.remembered)
        self.cockpit = Cockpit(
            self.lists, self.checkpoints, area, self.aside, shape, needs, id="cockpit"
        )
        area.choose(shape.tab)
        self.places = Places(self, self.cockpit, memory)
        self._main_actions = MainActions(self, self.places, operations, dialogs, full_shell)
        self._tree_actions = TreeActions(self, self.places, operations, dialogs)
        self._ways = Ways(self, self.places, present)

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(Content(BRAND), id="brand", markup=False)
            yield self._counts
            yield self._host
        yield self.cockpit
        yield self._command_line
        yield self._actions

    def on_mount(self) -> None:
        self.show(self.world)

    def update_node_styles(self, animate: bool = True) -> None:
        """Skips the first call: Textual computes all styles when a screen comes to the front, but
        the first screen has just got them when it was composed."""
        if animate or self._was_in_front:
            super().update_node_styles(animate)
        else:
            self._was_in_front = True

    def complete(self, machine: str = "") -> None:
        """Mounts all that the first paint does not need, and goes to the ``machine``, if any."""
        self.lists.complete(machine)
        self.area.complete()
        self.show(self.world)

    @property
    def sandboxes(self) -> Browser[Any]:
        return self.lists.sandboxes

    @property
    def shows_saves(self) -> bool:
        return self.lists.panel is Panel.SAVES

    @property
    def selection(self) -> Selection:
        """The rows under the cursors, and the marked rows."""
        if self._aim is not None:
            return self._aim
        lists, held = self.lists, self._held
        chosen, marked = (lists.sandbox, lists.marked) if held is None else (held, ())
        sandbox = None if chosen is None else self.world.sandbox(chosen.id)
        return Selection(
            # The tree and the main area always show a sandbox, whatever list is visible.
            panel=lists.panel if self.places.part is Part.LISTS else Panel.SANDBOXES,
            sandbox=sandbox,
            machine=lists.machine if sandbox is None else sandbox.host,
            marked_sandboxes=marked,
            image=lists.images.selected,
            save=lists.save if self.shows_saves else None,
            saves_of=lists.saves_of if self.shows_saves else None,
            checkpoint=self.checkpoints.selected_of(sandbox),
            compared=self.checkpoints.compared_of(sandbox),
            in_tree=self.places.part is Part.TREE,
            mount=self.area.selected_mount(sandbox) if self.places.part is Part.AREA else None,
        )

    @property
    def _held(self) -> SandboxView | None:
        """The sandbox whose shells the user types into although it is no longer listed, because it
        was deleted or is filtered out. It stays the selection until the user leaves them."""
        typed_into = self.area.shells.typed_into if self.places.in_shells else None
        if typed_into is None or self.lists.sandboxes.table.has_row(typed_into.id):
            return None
        return typed_into

    @property
    def visible_sandboxes(self) -> frozenset[str]:
        """Ids of the sandboxes whose CPU and memory are visible."""
        table = self.lists.sandboxes.table
        keys = {*table.visible_keys, table.selected_key or MACHINE_KEY}
        return frozenset(key for key in keys if not key.startswith(MACHINE_KEY))

    @property
    def chosen_sandboxes(self) -> frozenset[str]:
        """Ids of the marked sandboxes, else of those that a filter lists; empty without either."""
        browser = self.sandboxes
        if marked := self.lists.marked:
            return frozenset(view.id for view in marked)
        if not browser.query_text:
            return frozenset()
        return frozenset(v.id for v in self.world.sandboxes if browser.table.has_row(v.id))

    @property
    def sandboxes_with_network(self) -> frozenset[str]:
        """Ids of the running sandboxes whose network is visible."""
        table = self.lists.sandboxes.table
        if not (table.shows_column(NETWORK_COLUMN) and self.app.screen is self):
            return frozenset()
        # Sandboxes with a running job are not asked.
        asked = set(table.visible_keys) - {job.sandbox_id for job in self.world.jobs}
        running = (view for view in self.world.sandboxes if view.state is Status.RUNNING)
        return frozenset(view.id for view in running if view.id in asked)

    # Showing

    def update_world(self, world: World) -> None:
        self.show(world)

    def show(self, world: World) -> None:
        self.world = world = replace(world, doing=self.area.doing)
        self._show_top()
        self.lists.show(world)
        self.places.fit(self.lists.rows_wanted, world)
        self.show_selection()

    def _show_top(self) -> None:
        top = top_texts(
            self.world, self.size.width, used=TOP_USED, has_mouse=self._terminal.has_mouse
        )
        if top != self._top:
            self._top = top
            self._counts.update(self._text(top[0]))
            self._host.update(self._text(top[1]))

    def on_resize(self) -> None:
        self._show_top()
        self.places.rearrange()

    def show_command(self, record: CommandRecord | None) -> None:
        self._command_line.show_record(record)

    @on(PaneChanged)
    @on(DesktopChanged)
    def _pane_changed(self, event: PaneChanged | DesktopChanged) -> None:
        event.stop()
        selection = self.selection
        self._show_bar(selection.sandbox)
        self._show_actions(selection)
        self._app_keys.panes.update()

    def _show_actions(self, selection: Selection) -> None:
        prefixed = self.area.is_prefixed
        self._actions.show(self.world, selection, self.places.scope, prefixed=prefixed)

    def _show_bar(self, sandbox: SandboxView | None) -> None:
        self.cockpit.show_bar(sandbox, typing=self.places.in_shells)

    @on(Browser.Moved)
    @on(TreePanel.Moved)
    @on(MountMoved)
    @on(KnownChanged)
    def show_selection(self) -> None:
        """Shows what depends on the selection."""
        world, selection = self.world, self.selection
        self.places.leave_tab_of_others(selection.sandbox)
        self.checkpoints.show(world, selection.sandbox)
        selection = self.selection
        known = self.area.known_of(selection)
        beside = self.cockpit.has_aside
        self.area.show(world, selection, self._held, known=known, beside=beside)
        if beside:
            self.aside.show(world, selection.sandbox, known)
        self._show_bar(selection.sandbox)
        self._show_actions(selection)
        tab = self.area.tab if self.places.part is Part.AREA else None
        self._command_line.show_hint(hint_for(selection, tab))
        self._app_keys.panes.update()

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    @property
    def help_scope(self) -> Scope:
        """The scope of the help."""
        return self.places.scope

    # Parts

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        if event.widget is not self.focused:
            return  # the focus has moved on already, and is shown by its own event
        self.places.follow_focus(event.widget)
        self.checkpoints.focus_changed(self.world)
        self.lists.browser.focus_changed()
        self.show_selection()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self._app_keys.panes.update)
        self.area.cover_changed()

    def on_screen_suspend(self) -> None:
        self._app_keys.panes.update()
        # When the screen that lies over this one has its style.
        self.app.call_after_refresh(self.area.cover_changed)

    @on(ShellsZoomed)
    def _zoom_shells(self) -> None:
        self.places.zoom_shells()

    def action_step_part(self, by: int) -> None:
        self.places.step(by)

    def action_part(self, name: str) -> None:
        self.places.go_to(Part(name))

    def action_panel(self, name: str) -> None:
        self.lists.choose(Panel(name))
        if self.shows_saves:
            self.post_message(SavesShown())
        self.places.go_to(Part.LISTS)
        self.show(self._present.world)

    def action_tab(self, name: str) -> None:
        """Shows and focuses a tab that was clicked."""
        self.places.choose_tab(Tab(name))
        self.places.go_to(Part.TREE if name == Tab.TREE.value else Part.AREA)

    # Input

    @on(Browser.Opened)
    def _opened(self) -> None:
        self.action_do("open")

    @on(Asked)
    def _asked(self, event: Asked) -> None:
        event.stop()
        self.action_do(event.action_id, event.scope.value)
        self._app_keys.panes.command_done()

    @on(ShellsLeft)
    def _shells_left(self) -> None:
        if self.places.in_shells:
            self.places.go_to(Part.LISTS)
        self.show_selection()

    def get_focusable_widget_at(self, x: int, y: int) -> Widget | None:
        """Returns the widget that a click focuses, at once: for the title of a pane, that pane."""
        return self.area.pane_titled_at(x, y) or super().get_focusable_widget_at(x, y)

    def take_early(self, key: events.Key) -> bool:
        shells = self.area.shells
        return shells.is_attached and shells.take_early(key)

    def action_do(self, action_id: str, scope: str = "") -> None:
        if self._full_shell.opens or self.app.screen is not self:
            return  # keys are now meant for the shell or the dialog that is opening
        action = find_action(action_id, Scope(scope or Scope.MAIN.value))
        # The prefix shows that a key is a command, even if text follows it.
        prefixed = action.scope in PREFIXED
        if not prefixed and self._app_keys.refuse_text(action):
            return
        if prefixed or not action.careful:
            self._carry_out(action)
            return
        # The cursor may have moved by the time the action runs.
        aim = self.selection
        self._app_keys.carefully(lambda: self._carry_out(action, aim))

    def _carry_out(self, action: Action, aim: Selection | None = None) -> None:
        if self.app.screen is not self:
            return
        self._aim = aim
        try:
            reason = self._app_keys.why_not(action, self.world, self.selection)
            if reason is not None:
                tell(self, reason, severity="warning")
                return
            if action.group is Group.SANDBOX and action.id not in MARKING:
                self._ways.used(self.selection.sandbox)
            doer = next((d for d in self.doers_of(action.scope) if d.does(action.id)), None)
            if doer is not None:
                doer.do(action.id)
            else:  # a part's key for the verb of an action of this screen, or that action
                self._main_actions.begin_verb(find_action(action.id))
        finally:
            self._aim = None

    def act(self, action_id: str, aim: Selection) -> None:
        """Carries out an action on ``aim`` instead of the selection."""
        if aim.sandbox is not None:
            self.show_sandbox(aim.sandbox.id)
        self._main_actions.is_aimed = True
        try:
            self._carry_out(find_action(action_id), aim)
        finally:
            self._main_actions.is_aimed = False

    def doers_of(self, scope: Scope) -> Iterator[Doer]:
        """Yields the part with that scope, and the screen for the rest."""
        if scope is Scope.TREE:
            yield from (self._tree_actions, self.checkpoints)
        elif scope is not Scope.MAIN and (tab := self.area.doer_of(scope)) is not None:
            yield tab
        yield from (self._ways, self._main_actions, self.everywhere)

    def show_sandbox(self, sandbox_id: str) -> None:
        """Puts the cursor on a sandbox, and drops a filter that hides it."""
        self.places.show_sandbox(sandbox_id)

    def open_tile(self, key: TileKey) -> Widget | None:
        """Goes to the contents of a tile of the wall, as `Ways.open_tile`."""
        return self._ways.open_tile(key)

    def filter_by(self, words: str) -> bool:
        self.lists.choose(Panel.SANDBOXES)
        self.sandboxes.filter_by(words)
        return True

    def create(self, spec: NewSpec) -> None:
        """Comes to the front, and starts a new sandbox, with the cursor on it."""
        while self.app.screen is not self:
            self.app.pop_screen()
        self._main_actions.create(spec)
