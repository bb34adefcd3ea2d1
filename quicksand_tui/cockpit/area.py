"""The main area: tabs, and what the chosen one shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from quicksand_tui.actions import Scope
from quicksand_tui.cockpit.layout import Tab
from quicksand_tui.cockpit.log import LogPanel
from quicksand_tui.cockpit.shells import Shells
from quicksand_tui.cockpit.stats import StatsPanel
from quicksand_tui.happenings import Happening
from quicksand_tui.snapshot import CommandRecord, SandboxView, Selection, Service, Snapshot
from quicksand_tui.view import MUTED, ROLES, state_text
from quicksand_tui.widgets.details import Details
from quicksand_tui.widgets.facts import STYLES
from quicksand_tui.widgets.tab_bar import TabBar


class Area(Vertical):
    """Shows one of its tabs. What is not shown costs nothing, but for shells, which run on."""

    def __init__(
        self,
        service: Service,
        events: Callable[[], Sequence[Happening]],
        commands: Callable[[], Sequence[CommandRecord]],
        mouse_released: Callable[[], bool],
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.mouse_released = mouse_released
        self._bar = TabBar(ascii_only=ascii_only, id="area-tabs")
        self.details = Details(ascii_only=ascii_only, id="details")
        self.details.can_focus = True
        self.shells = Shells(service, ascii_only=ascii_only, id="shells-tab")
        self.logs = LogPanel(service, events, commands, ascii_only=ascii_only, id="log-panel")
        self.stats = StatsPanel(service, ascii_only=ascii_only, id="stats")
        self._tab = Tab.DETAILS
        self._parts: dict[Tab, Widget] = {
            Tab.DETAILS: self.details,
            Tab.SHELLS: self.shells,
            Tab.LOG: self.logs,
            Tab.STATS: self.stats,
        }

    def compose(self) -> ComposeResult:
        yield self._bar
        yield self.details
        self.details.display = self._tab is Tab.DETAILS

    def complete(self) -> None:
        """Add the tabs that need not be there for the first paint."""
        if not self.is_attached or self.shells.is_attached:
            return
        for tab, part in self._parts.items():
            if part is not self.details:
                part.display = tab is self._tab
                self.mount(part)

    @property
    def tab(self) -> Tab:
        return self._tab

    def choose(self, tab: Tab) -> None:
        """Show another tab; with TREE none of ours: the tree lies over them."""
        if tab is self._tab:
            return
        self.complete()
        self._tab = tab
        for name, part in self._parts.items():
            part.display = name is tab

    def focus_tab(self) -> bool:
        """Give what is shown the focus; False if there is nothing that takes it."""
        if self._tab is Tab.SHELLS:
            if self.shells.workspace is None:
                return False
            self.shells.focus_current()
        elif self._tab is Tab.LOG:
            self.screen.set_focus(self.logs.view)
        elif self._tab is not Tab.TREE:
            self.screen.set_focus(self._parts[self._tab])
        return True

    def show(self, snapshot: Snapshot, selection: Selection) -> None:
        sandbox = selection.sandbox
        if self._tab is Tab.DETAILS:
            self.details.show(snapshot, selection)
        if not self.shells.is_attached:
            return
        self.shells.keep_only({view.id for view in snapshot.sandboxes})
        self.shells.show(sandbox)
        self.logs.show(sandbox if self._tab is Tab.LOG else None)
        self.stats.show(sandbox if self._tab is Tab.STATS else None)

    def show_bar(self, sandbox: SandboxView | None, *, with_tree: bool, typing: bool) -> None:
        """The line of tabs, with the tree as one or without; ``typing``: keys go to a shell."""
        tabs = tuple(
            (tab.value, tab.value.capitalize()) for tab in Tab if tab is not Tab.TREE or with_tree
        )
        lead = ("", "")
        if typing and (pane := self.shells.pane) is not None:
            name = f"{sandbox.name} · " if sandbox is not None else ""
            name += "mouse: terminal · " if self.mouse_released() else ""
            prefix = self.shells.tui.prefix.text
            help_ = self.shells.tui.settings.keymap.hint("help", Scope.PANES.value)
            hint = f"{name}{prefix} and a key; {help_} shows all"
            lead = (f"{name}{prefix} …", "reverse") if pane.prefixed else (hint, MUTED)
            self._bar.show(tabs, self._tab.value, lead)
            return
        if sandbox is not None:
            lead = (f"{sandbox.name} {state_text(sandbox.state)}", STYLES[ROLES[sandbox.state]])
        self._bar.show(tabs, self._tab.value, lead)

    @on(TabBar.Chosen)
    def _tab_clicked(self, event: TabBar.Chosen) -> None:
        event.stop()
        self.screen.call_later(self.screen.run_action, f"tab('{event.tab}')")
