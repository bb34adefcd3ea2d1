"""The first screen: lists, the tree of checkpoints, and the main area with its tabs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Static

from quicksand_tui import shape_memory
from quicksand_tui.actions import Scope, find_action, in_scope
from quicksand_tui.cockpit.area import Area
from quicksand_tui.cockpit.base import Asked
from quicksand_tui.cockpit.cockpit import Cockpit
from quicksand_tui.cockpit.layout import COMMAND_LINE_FROM, STEP, Part, Shape, Tab, widened
from quicksand_tui.cockpit.lists import Lists
from quicksand_tui.cockpit.tree import TreePanel
from quicksand_tui.outline import BRAND
from quicksand_tui.panes.messages import PaneChanged, ShellsLeft
from quicksand_tui.saves_view import jobs_text
from quicksand_tui.screens.base import ActionScreen, bindings_of, refuse_paste
from quicksand_tui.screens.main_actions import MainActions, TreeActions
from quicksand_tui.snapshot import Panel, Selection, Snapshot, State
from quicksand_tui.text import plain
from quicksand_tui.view import NETWORK_COLUMN, counts_text, host_text
from quicksand_tui.widgets.action_bar import ActionBar
from quicksand_tui.widgets.browser import Browser
from quicksand_tui.widgets.command_line import CommandLine

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.command_record import CommandRecord
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.specs import NewSpec

USUAL_WIDTH = 70
"""Cells below which the first line says nothing of the host."""

TOP_USED = 4 + len("quicksand") + 4
"""Cells of the first line that are neither counts nor host."""

CYCLE = (Part.LISTS, Part.TREE, Part.AREA)


class MainScreen(ActionScreen):
    """Shows a snapshot. Actions of `Scope.MAIN` are its keys; parts have their own on top."""

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

    def __init__(self, app: QuicksandApp, snapshot: Snapshot, *, ascii_only: bool) -> None:
        # The usual height: to find that out later is to have all styles worked out again.
        super().__init__(classes="-usual")
        self.tui = app
        self.snapshot = snapshot
        self._ascii = ascii_only
        self._aim: Selection | None = None
        """What an action is about that is not about what the cursor is on."""
        self._wanted = ""
        """Name of a sandbox that the cursor should go to when it appears."""
        # Kept and not looked up: a snapshot may come when the screen is just being taken down.
        self._counts = Static(id="counts", markup=False)
        self._host = Static(id="host", markup=False)
        self._top = ("", "")
        self._was_in_front = False
        self.back_to_shell = False
        """The tree was opened out of a shell: going to a checkpoint leads back there."""
        self._command_line = CommandLine(ascii_only=ascii_only, id="command-line")
        self._actions = ActionBar(Scope.MAIN, id="actions")
        self.lists = Lists(ascii_only=ascii_only, id="lists")
        self.checkpoints = TreePanel(ascii_only=ascii_only, id="checkpoints")
        self.area = Area(
            app.service,
            lambda: app.events,
            lambda: app.operations.log,
            lambda: app.mouse_released,
            ascii_only=ascii_only,
            id="area",
        )
        shape = shape_memory.recall_shape(app.remembered)
        self.cockpit = Cockpit(self.lists, self.checkpoints, self.area, shape, id="cockpit")
        self.area.choose(shape.tab)
        self.main_actions = MainActions(self)
        self._tree_actions = TreeActions(self)

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(Content(BRAND), id="brand", markup=False)
            yield self._counts
            yield self._host
        yield self.cockpit
        yield self._command_line
        yield self._actions

    def on_mount(self) -> None:
        self.show(self.snapshot)

    def update_node_styles(self, animate: bool = True) -> None:
        """Textual has all styles worked out when a screen comes to the front: a first one has just
        got them, as it was composed."""
        if animate or self._was_in_front:
            super().update_node_styles(animate)
        else:
            self._was_in_front = True

    def complete(self) -> None:
        """Add all that the first paint could do without."""
        self.lists.complete()
        self.area.complete()
        self.show(self.snapshot)

    @property
    def sandboxes(self) -> Browser[Any]:
        return self.lists.sandboxes

    @property
    def shows_saves(self) -> bool:
        return self.lists.panel is Panel.SAVES

    @property
    def part(self) -> Part:
        """Which part has the focus, or had it last."""
        return self.cockpit.focused_part

    @property
    def selection(self) -> Selection:
        """What the cursors are on."""
        if self._aim is not None:
            return self._aim
        lists = self.lists
        chosen, marked = lists.sandboxes.selected, lists.sandboxes.marked
        if (held := self._held) is not None:
            chosen, marked = held, ()
        sandbox = None if chosen is None else self.snapshot.sandbox(chosen.id)
        return Selection(
            # What the tree and the main area show is about a sandbox, whatever list is shown.
            panel=lists.panel if self.part is Part.LISTS else Panel.SANDBOXES,
            sandbox=sandbox,
            marked_sandboxes=marked,
            image=lists.images.selected,
            save=lists.saves.selected if self.shows_saves else None,
            checkpoint=self.checkpoints.selected_of(sandbox),
            in_tree=self.part is Part.TREE,
        )

    @property
    def _in_shells(self) -> bool:
        """Keys go to the shells."""
        return self.part is Part.AREA and self.area.tab is Tab.SHELLS

    @property
    def _held(self) -> SandboxView | None:
        """Whose shells the user types into though it is listed no more: it was deleted, or the
        filter hides it. Until he leaves them, they stay, and commands are about no other one."""
        typed_into = self.area.shells.typed_into if self._in_shells else None
        if typed_into is None or self.lists.sandboxes.table.has_row(typed_into.id):
            return None
        return typed_into

    @property
    def visible_sandboxes(self) -> frozenset[str]:
        """Ids whose use of CPU and memory somebody can see."""
        table = self.lists.sandboxes.table
        return frozenset([*table.visible_keys, table.selected_key or ""]) - {""}

    @property
    def sandboxes_with_network(self) -> frozenset[str]:
        """Ids of those that run and whose network somebody can see."""
        table = self.lists.sandboxes.table
        if not (table.shows_column(NETWORK_COLUMN) and self.tui.screen is self):
            return frozenset()
        # Those that something is done to are left alone.
        asked = set(table.visible_keys) - {job.sandbox_id for job in self.snapshot.jobs}
        running = (view for view in self.snapshot.sandboxes if view.state is State.RUNNING)
        return frozenset(view.id for view in running if view.id in asked)

    # Showing

    def show(self, snapshot: Snapshot) -> None:
        """Show another moment."""
        self.snapshot = snapshot
        self._show_top()
        self.lists.show(snapshot)
        self._go_to_wanted()
        self._show_selection()

    def _show_top(self) -> None:
        host = "" if self.size.width < USUAL_WIDTH else host_text(self.snapshot)
        doing = jobs_text(self.snapshot)
        if doing:
            # What is under way is worth more than what the host has left.
            host, doing = "", f" · {doing}"
        if self.tui.mouse_released:
            doing += " · mouse: terminal"
        if self.snapshot.read_only:
            doing = f" · read-only{doing}"
        room = self.size.width - len(host) - TOP_USED
        top = (counts_text(self.snapshot, room - len(doing)) + doing, host)
        if top != self._top:
            self._top = top
            self._counts.update(self._text(top[0]))
            self._host.update(self._text(top[1]))

    def on_resize(self) -> None:
        self._show_top()
        self._rearrange()

    def show_command(self, record: CommandRecord | None) -> None:
        self._command_line.show(record)

    def want(self, name: str) -> None:
        """Put the cursor on the sandbox called ``name``, now or when it appears."""
        self._wanted = name
        self._go_to_wanted()

    def _go_to_wanted(self) -> None:
        for view in self.snapshot.sandboxes:
            if self._wanted and view.name == self._wanted:
                if self.sandboxes.table.select(view.id) and not view.id.startswith("new:"):
                    self._wanted = ""
                return

    @on(PaneChanged)
    def _pane_changed(self, event: PaneChanged) -> None:
        event.stop()
        selection = self.selection
        self._show_bar(selection.sandbox)
        self._actions.show(self.snapshot, selection, self._scope)
        self.tui.pane_keys.update()

    def _show_bar(self, sandbox: SandboxView | None) -> None:
        with_tree = self.cockpit.arrangement().tree_is_tab
        self.area.show_bar(sandbox, with_tree=with_tree, typing=self._in_shells)

    @on(Browser.Moved)
    @on(TreePanel.Moved)
    def _show_selection(self) -> None:
        snapshot, selection = self.snapshot, self.selection
        self.checkpoints.show(snapshot, selection.sandbox)
        selection = self.selection
        self.area.show(snapshot, selection, self._held)
        self._show_bar(selection.sandbox)
        self._actions.show(snapshot, selection, self._scope)
        self.tui.pane_keys.update()

    @property
    def _scope(self) -> Scope:
        """Whose keys count first."""
        if self.part is Part.TREE:
            return Scope.TREE
        if self.part is Part.AREA:
            return {Tab.SHELLS: Scope.PANES, Tab.LOG: Scope.LOG}.get(self.area.tab, Scope.MAIN)
        return Scope.MAIN

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    @property
    def help_scope(self) -> Scope:
        """What the help is about."""
        return self._scope

    # Parts

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        part = self.cockpit.part_of(event.widget)
        if part is not self.part:
            self._rearrange(focused=part)
        self.checkpoints.focus_changed(self.snapshot)
        self._show_selection()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(self.tui.pane_keys.update)

    def on_screen_suspend(self) -> None:
        self.tui.pane_keys.update()

    def _rearrange(self, shape: Shape | None = None, focused: Part | None = None) -> None:
        cockpit = self.cockpit
        cockpit.rearrange(shape or cockpit.shape, focused or cockpit.focused_part)
        places = cockpit.arrangement().places
        # A shell that has all to itself is worth the lines above and below it.
        alone = cockpit.focused_part is Part.AREA and Part.LISTS not in places
        self.set_class(alone and self.area.tab is Tab.SHELLS, "-shell-alone")
        if shape is not None:
            self.tui.remember(shape_memory.NAME, shape_memory.kept_of(shape))

    def go_to(self, part: Part) -> None:
        """Give a part the focus. Where the tree is a tab, that becomes the chosen one."""
        if part is Part.TREE and self.cockpit.arrangement().tree_is_tab:
            self._set_tab(Tab.TREE)
        if part is Part.AREA and self.area.tab is Tab.TREE:
            part = Part.TREE
        # Hidden, it must be there before it can be focused.
        self._rearrange(focused=part)
        if part is Part.LISTS:
            self.back_to_shell = False
            self.set_focus(self.lists.browser.table)
        elif part is Part.TREE:
            self.set_focus(self.checkpoints.table)
        elif not self.area.focus_tab():
            self._rearrange(focused=Part.LISTS)
            self.set_focus(self.lists.browser.table)
        self._show_selection()

    def choose_tab(self, tab: Tab) -> None:
        """Show a tab of the main area; the focus stays unless it was in the one before."""
        tree_is_tab = self.cockpit.arrangement().tree_is_tab
        had_focus = self.part is Part.AREA or (self.part is Part.TREE and tree_is_tab)
        if tab is not Tab.TREE or tree_is_tab:
            self._set_tab(tab)
        if had_focus:
            self.go_to(Part.TREE if tab is Tab.TREE else Part.AREA)
        self._show_selection()

    def _set_tab(self, tab: Tab) -> None:
        self.area.choose(tab)
        self._rearrange(replace(self.cockpit.shape, tab=tab))

    def toggle_zoom(self) -> None:
        shape = replace(self.cockpit.shape, zoomed=not self.cockpit.shape.zoomed)
        if self._scope is Scope.PANES and self.area.shells.workspace is not None:
            self.area.shells.workspace.zoom(shape.zoomed)
        self._rearrange(shape)
        self._show_selection()

    def widen(self, by: int) -> None:
        """Make the column that has the focus wider, by steps."""
        shape = widened(self.cockpit.shape, self.part, by * STEP, self.size.width)
        self._rearrange(shape)

    def action_step_part(self, by: int) -> None:
        at = CYCLE.index(self.part)
        others = (CYCLE[(at + by * n) % len(CYCLE)] for n in range(1, len(CYCLE)))
        self.go_to(next((part for part in others if self._can_focus(part)), self.part))

    def _can_focus(self, part: Part) -> bool:
        if part is Part.TREE:
            # As a tab it is reached by way of the main area.
            return not self.cockpit.arrangement().tree_is_tab or self.area.tab is Tab.TREE
        if part is Part.AREA:
            no_shell = self.area.tab is Tab.SHELLS and self.area.shells.workspace is None
            return self.area.tab is not Tab.TREE and not no_shell
        return True

    def action_part(self, name: str) -> None:
        self.go_to(Part(name))

    def action_panel(self, name: str) -> None:
        self.lists.choose(Panel(name))
        if self.shows_saves:
            self.tui.watch_saves()
        self.go_to(Part.LISTS)
        self.show(self.tui.snapshot)

    def action_tab(self, name: str) -> None:
        """A tab was clicked."""
        self.choose_tab(Tab(name))
        self.go_to(Part.TREE if name == Tab.TREE.value else Part.AREA)

    # Input

    def on_paste(self, event: events.Paste) -> None:
        self.tui.tell(refuse_paste(event), severity="warning")

    @on(Browser.Opened)
    def _opened(self) -> None:
        self.action_do("open")

    @on(Asked)
    def _asked(self, event: Asked) -> None:
        event.stop()
        self.action_do(event.action_id, event.scope.value)
        # By then the focus is where the command has put it.
        self.call_after_refresh(self.tui.pane_keys.command_done)

    @on(ShellsLeft)
    def _shells_left(self) -> None:
        if self._in_shells:
            self.go_to(Part.LISTS)
        self._show_selection()

    def take_early(self, key: events.Key) -> bool:
        """Take a key that is meant for a shell, though it was sent to what had the focus before."""
        shells = self.area.shells
        return shells.is_attached and shells.take_early(key)

    def action_do(self, action_id: str, scope: str = Scope.MAIN.value) -> None:
        """Carry out an action of the registry, or say why not."""
        if self.tui.full_shell.opens or self.app.screen is not self:
            return  # what is typed now is meant for the shell, or for the dialog that opens
        action = find_action(action_id, Scope(scope))
        reason = action.disabled_reason(self.snapshot, self.selection)
        if reason is not None:
            self.tui.tell(reason, severity="warning")
            return
        self._method(action.id, action.scope)()

    def act(self, action_id: str, aim: Selection) -> None:
        """Carry out an action as its key does, about ``aim`` instead of what the cursor is on."""
        if aim.sandbox is not None:
            self.show_sandbox(aim.sandbox.id)
        self._aim = aim
        try:
            self.action_do(action_id)
        finally:
            self._aim = None

    def show_sandbox(self, sandbox_id: str) -> None:
        """Put the cursor on a sandbox; a filter that hides it goes."""
        self.lists.choose(Panel.SANDBOXES)
        if not self.sandboxes.table.select(sandbox_id):
            self.filter_by("")
            self.sandboxes.table.select(sandbox_id)
        self._show_selection()

    def filter_by(self, words: str) -> None:
        """Show the sandboxes that match these."""
        self.lists.choose(Panel.SANDBOXES)
        self.sandboxes.filter_by(words)

    def create(self, spec: NewSpec) -> None:
        """Start a new sandbox, with the cursor on it."""
        self.main_actions.create(spec)

    def _method(self, action_id: str, scope: Scope) -> Callable[[], None]:
        """What carries an action out: the part's own method, or else the screen's."""
        name = f"do_{action_id}"
        part: object = self.main_actions
        match scope:
            case Scope.TREE:
                part = self._tree_actions
            case Scope.LOG:
                part = self.area.logs
            case Scope.PANES:
                part = self.area.shells
        method = getattr(part, name, None) or getattr(self.main_actions, name)
        return cast("Callable[[], None]", method)
