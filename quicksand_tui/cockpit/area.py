"""The main area: tabs, and what the chosen one shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widget import Widget

from quicksand_tui.actions import Scope
from quicksand_tui.cockpit.layout import Tab
from quicksand_tui.view import MUTED, ROLES, state_text
from quicksand_tui.widgets.details import Details
from quicksand_tui.widgets.facts import STYLES
from quicksand_tui.widgets.tab_bar import TabBar

if TYPE_CHECKING:
    from quicksand_tui.cockpit.log import LogPanel
    from quicksand_tui.cockpit.shells import Shells
    from quicksand_tui.cockpit.stats import StatsPanel
    from quicksand_tui.command_record import CommandRecord
    from quicksand_tui.happenings import Happening
    from quicksand_tui.listed import SandboxView
    from quicksand_tui.services import Service
    from quicksand_tui.snapshot import Selection, Snapshot


class Area(Vertical):
    """Shows one of its tabs. What is not shown costs nothing, but for shells, which run on. Of the
    tabs only the details are there for the first paint; the others are not even imported."""

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
        self._service = service
        self._events = events
        self._commands = commands
        self._ascii = ascii_only
        self.mouse_released = mouse_released
        self._bar = TabBar(ascii_only=ascii_only, id="area-tabs")
        self.details = Details(ascii_only=ascii_only, id="details")
        self.details.can_focus = True
        self._tab = Tab.DETAILS
        self._parts: dict[Tab, Widget] = {Tab.DETAILS: self.details}
        """Those that are mounted."""

    @cached_property
    def shells(self) -> Shells:
        from quicksand_tui.cockpit.shells import Shells

        return Shells(self._service, ascii_only=self._ascii, id="shells-tab")

    @cached_property
    def logs(self) -> LogPanel:
        from quicksand_tui.cockpit.log import LogPanel

        return LogPanel(
            self._service, self._events, self._commands, ascii_only=self._ascii, id="log-panel"
        )

    @cached_property
    def stats(self) -> StatsPanel:
        from quicksand_tui.cockpit.stats import StatsPanel

        return StatsPanel(self._service, ascii_only=self._ascii, id="stats")

    @property
    def _is_complete(self) -> bool:
        return len(self._parts) > 1

    def compose(self) -> ComposeResult:
        yield self._bar
        yield self.details
        self.details.display = self._tab is Tab.DETAILS

    def complete(self) -> None:
        """Add the tabs that need not be there for the first paint."""
        if not self.is_attached or self._is_complete:
            return
        for tab, part in (
            (Tab.SHELLS, self.shells),
            (Tab.LOG, self.logs),
            (Tab.STATS, self.stats),
        ):
            self._parts[tab] = part
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
        self.complete()
        if self._tab is Tab.SHELLS:
            if self.shells.workspace is None:
                return False
            self.shells.focus_current()
        elif self._tab is Tab.LOG:
            self.screen.set_focus(self.logs.view)
        elif self._tab is not Tab.TREE:
            self.screen.set_focus(self._parts[self._tab])
        return True

    def show(
        self, snapshot: Snapshot, selection: Selection, held: SandboxView | None = None
    ) -> None:
        """``held``: whose shells stay, whatever is selected."""
        sandbox = selection.sandbox
        if self._tab is Tab.DETAILS:
            self.details.show(snapshot, selection)
        if not self._is_complete:
            return
        ids = {view.id for view in snapshot.sandboxes}
        if held is None:
            self.shells.keep_only(ids)
            self.shells.show(sandbox)
        elif held.id in ids:
            self.shells.show(snapshot.sandbox(held.id))
        else:
            self.shells.keep_only(ids | {held.id})
            self.shells.keep_deleted()
        self.logs.show(sandbox if self._tab is Tab.LOG else None)
        self.stats.show(sandbox if self._tab is Tab.STATS else None)

    def show_bar(self, sandbox: SandboxView | None, *, with_tree: bool, typing: bool) -> None:
        """The line of tabs, with the tree as one or without; ``typing``: keys go to a shell."""
        tabs = tuple(
            (tab.value, tab.value.capitalize()) for tab in Tab if tab is not Tab.TREE or with_tree
        )
        lead = ("", "")
        if typing and (pane := self.shells.pane) is not None:
            sandbox = sandbox or self.shells.typed_into
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
