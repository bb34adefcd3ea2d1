"""The main area with its tabs, the parts below its overview, and the changed files in that."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from quicksand.things.frozen import frozen
from quicksand.things.status import Status
from textual import on
from textual.containers import Vertical

from quicksand_tui.actions.all_actions import Scope
from quicksand_tui.cockpit import lazy_tabs
from quicksand_tui.cockpit.part import KnownChanged
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.shown_sandboxes import Changes, Known
from quicksand_tui.model.world import Panel
from quicksand_tui.views.happenings import events_of, last_commands
from quicksand_tui.views.main_layout import Tab, tabs_of
from quicksand_tui.views.overview import NOTHING_KNOWN
from quicksand_tui.views.sandbox_rows import silence_text
from quicksand_tui.views.tables import MUTED
from quicksand_tui.widgets.bars import TabBar
from quicksand_tui.widgets.details import STYLES, Details

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from quicksand.things.mount_facts import MountFacts
    from textual.app import ComposeResult
    from textual.widget import Widget
    from textual.worker import WorkType

    from quicksand_tui.actions.all_actions import Doer
    from quicksand_tui.cockpit.checkpoint_previews import Choice, ThenAndNow
    from quicksand_tui.cockpit.desktop_tab import DesktopPanel
    from quicksand_tui.cockpit.desktop_view import Miniature
    from quicksand_tui.cockpit.log import LogPanel
    from quicksand_tui.cockpit.mounts_tab import MountsPanel
    from quicksand_tui.cockpit.part import Confirm
    from quicksand_tui.cockpit.shells_tab import Shells
    from quicksand_tui.cockpit.stats_tab import StatsPanel
    from quicksand_tui.door.service import EngineService
    from quicksand_tui.home.config_file import Settings
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.kit.outer_terminal import OuterTerminal
    from quicksand_tui.kit.remembered import Memory
    from quicksand_tui.model.shown_sandboxes import Glance, SandboxView
    from quicksand_tui.model.world import Selection, World
    from quicksand_tui.views.happenings import Happening
    from quicksand_tui.views.main_layout import Edge


REST_S = 0.7
"""Seconds for which the cursor has to rest before the disk is looked at."""
SHARE = 30
"""The time between two looks at a disk that changes, as a multiple of the time of a look."""
KEPT_MAX = 200
"""The number of comparisons kept."""


@frozen(kw_only=False)
class Question:
    """A comparison of two disks of a sandbox."""

    sandbox_id: str
    before: str
    """The id of a checkpoint."""
    after: str = ""
    """The id of a later checkpoint; "" for the present."""


class ChangedFiles:
    """Asks for one comparison at a time, for a widget that shows it: it gets `KnownChanged`."""

    def __init__(self, service: EngineService, owner: Widget) -> None:
        self._service = service
        self._owner = owner
        self._known: dict[Question, tuple[int | None, Changes]] = {}
        """The answers, by question, with the bytes that were written at that time."""
        self._asked: tuple[Question, int | None] | None = None
        self._not_before: dict[Question, float] = {}
        """The times of the next looks at disks that change (monotonic), by question."""

    def of(self, sandbox: SandboxView, checkpoint_id: str | None) -> Changes | None:
        """Returns the changes of a checkpoint, or with None those since the one where the sandbox
        stands, as far as they are known; asks for them if not."""
        tree = sandbox.tree
        chosen = tree.find(checkpoint_id)
        if checkpoint_id is None and tree.head is not None and tree.changed:
            return self._answer(Question(sandbox.id, tree.head), tree.changed)
        if chosen is not None and not chosen.error and tree.find(chosen.parent) is not None:
            assert chosen.parent is not None
            return self._answer(Question(sandbox.id, chosen.parent, chosen.id), None)
        self.stop()
        return None

    def stop(self) -> None:
        """Asks no more: nothing shows the answer."""
        if self._asked is not None:
            self._asked = None
            self._owner.workers.cancel_group(self._owner, "changes")

    def _answer(self, question: Question, written: int | None) -> Changes:
        known = self._known.get(question)
        current = known is not None and known[0] == written
        waits = time.monotonic() < self._not_before.get(question, 0.0)
        if not current and not waits and (self._asked is None or self._asked[0] != question):
            self._asked = (question, written)

            # Not a coroutine: one that is not begun before the app ends would never be awaited.
            asking: WorkType[None] = partial(self._ask, question, written)
            self._owner.run_worker(asking, group="changes", exclusive=True, name="changes")
        return Changes(asked=True) if known is None else known[1]

    async def _ask(self, question: Question, written: int | None) -> None:
        await asyncio.sleep(REST_S)
        began = time.monotonic()
        try:
            changes = await self._service.ask(
                "The disks cannot be compared",
                lambda engine: engine.changes(question.sandbox_id, question.before, question.after),
            )
        except OperationError as error:
            changes = Changes(why=error.failure.message)
        took = time.monotonic() - began
        if not question.after:
            self._not_before[question] = time.monotonic() + SHARE * took
        if len(self._known) >= KEPT_MAX:
            self._known.pop(next(iter(self._known)))
        self._known[question] = (written, changes)
        self._asked = None
        self._owner.post_message(KnownChanged())


CHOICE_ROWS_MIN, SCREENS_ROWS_MIN, MINIATURE_ROWS_MIN = 14, 16, 26
"""Rows of the area below which the facts have all of it."""


class Below:
    """Mounts each of the parts below the overview when it is first needed."""

    def __init__(
        self,
        area: Widget,
        details: Widget,
        service: EngineService,
        settings: Settings,
        terminal: OuterTerminal,
        *,
        ascii_only: bool,
    ) -> None:
        self._area = area
        self._details = details
        self._service = service
        self._settings = settings
        self._terminal = terminal
        self._ascii = ascii_only
        self._choice: Choice | None = None
        self._screens: ThenAndNow | None = None
        self._miniature: Miniature | None = None

    def show(self, world: World, selection: Selection, known: Known, *, has_live: bool) -> None:
        """Shows the parts that belong to the selection; ``known`` is about its sandbox.
        ``has_live`` says whether its screen may be watched already."""
        self._show_choice(world, selection)
        self._show_screens(selection)
        self._show_miniature(selection, known, may=has_live)

    def hide(self) -> None:
        for part in (self._choice, self._screens, self._miniature):
            if part is not None:
                part.hide()

    def adapt(self) -> None:
        """Follows other screens that lie over this one now, or no longer."""
        if self._miniature is not None:
            self._miniature.adapt()

    def _show_choice(self, world: World, selection: Selection) -> None:
        """Shows the losses of going back to the selected checkpoint."""
        checkpoint = selection.checkpoint if selection.in_tree else None
        if self._choice is None:
            if checkpoint is None:
                return
            self._choice = lazy_tabs.Choice(self._service, ascii_only=self._ascii, id="choice")
            self._area.mount(self._choice, after=self._details)
        has_room = self._area.size.height >= CHOICE_ROWS_MIN
        self._choice.show(world, selection.sandbox, checkpoint if has_room else None)

    def _show_screens(self, selection: Selection) -> None:
        """Shows the screen at the selected checkpoint beside that of another one or the present."""
        checkpoint = selection.checkpoint if selection.in_tree else None
        sandbox = selection.sandbox
        has_room = self._area.size.height >= SCREENS_ROWS_MIN
        if self._screens is None:
            if checkpoint is None or sandbox is None or not (sandbox.has_display and has_room):
                return
            self._screens = lazy_tabs.ThenAndNow(
                self._service, ascii_only=self._ascii, id="screens"
            )
            self._area.mount(self._screens)
        self._screens.show(sandbox, checkpoint if has_room else None, selection.compared)

    def _show_miniature(self, selection: Selection, known: Known, *, may: bool) -> None:
        """Shows the screen of a sandbox without an open shell (a shell's lines would replace
        it)."""
        sandbox = selection.sandbox
        wanted = (
            may
            and sandbox is not None
            and sandbox.has_display
            and selection.panel is Panel.SANDBOXES
            and not selection.in_tree
            and known.glance is None
            and self._area.size.height >= MINIATURE_ROWS_MIN
        )
        if self._miniature is None:
            if not wanted:
                return
            self._miniature = lazy_tabs.Miniature(
                self._service,
                self._settings,
                self._terminal,
                ascii_only=self._ascii,
                id="miniature",
            )
            self._miniature.border_title = "Desktop"
            self._area.mount(self._miniature, after=self._details)
        self._miniature.show(sandbox if wanted else None)


GLANCE_EVERY_S = 1.0
"""Seconds between two looks at the shell in the overview."""
GLANCE_LESS = 20
"""Lines of the area that the overview of a sandbox needs besides the lines of its shell."""

FRAMED = (Tab.DETAILS, Tab.LOG, Tab.MOUNTS, Tab.STATS)
"""Tabs with a frame, on whose first line the tabs are."""
LABELS = {Tab.DETAILS: "Overview"}
"""Labels of tabs where they differ from their names."""


class Area(Vertical):
    """Shows one of its tabs. Hidden tabs cost nothing, except that shells keep running. Only the
    details exist for the first paint; the other tabs are not even imported before it."""

    def __init__(
        self,
        service: EngineService,
        settings: Settings,
        operations: Operations,
        keys: Keys,
        terminal: OuterTerminal,
        memory: Memory,
        *,
        confirm: Confirm,
        world: Callable[[], World],
        events: Callable[[], Sequence[Happening]],
        ascii_only: bool,
        **options: Any,
    ) -> None:
        """``world`` and ``events`` return the present ones."""
        super().__init__(**options)
        self._service = service
        self._settings = settings
        self._operations = operations
        self._app_keys = keys
        self._terminal = terminal
        self._memory = memory
        self._confirm = confirm
        self._world = world
        self._events = events
        self._ascii = ascii_only
        self._changed = ChangedFiles(service, self)
        self._bar = TabBar(ascii_only=ascii_only, id="area-tabs")
        self.details = Details(ascii_only=ascii_only, id="details")
        self.details.can_focus = True
        self._below = Below(self, self.details, service, settings, terminal, ascii_only=ascii_only)
        self._seen: tuple[str, int, tuple[tuple[str, ...], Glance | None]] | None = None
        """The sandbox whose shells were shown last, the number of lines, and the contents."""
        self._tab = Tab.DETAILS
        self._parts: dict[Tab, Widget] = {Tab.DETAILS: self.details}
        """The mounted tabs."""

    @cached_property
    def shells(self) -> Shells:
        return lazy_tabs.Shells(
            self._service,
            self._operations,
            self._app_keys,
            self._memory,
            confirm=self._confirm,
            find_sandbox=lambda name: self._world().find_sandbox(name),
            ascii_only=self._ascii,
            settings=self._settings,
            terminal=self._terminal,
            id="shells-tab",
        )

    @cached_property
    def desktop(self) -> DesktopPanel:
        return lazy_tabs.DesktopPanel(
            self._service,
            self._settings,
            self._app_keys,
            self._terminal,
            ascii_only=self._ascii,
            id="desktop",
        )

    @cached_property
    def logs(self) -> LogPanel:
        return lazy_tabs.LogPanel(
            self._service,
            self._events,
            self._operations,
            self._app_keys,
            ascii_only=self._ascii,
            id="log-panel",
        )

    @cached_property
    def mounts(self) -> MountsPanel:
        return lazy_tabs.MountsPanel(
            self._operations,
            self._app_keys,
            self._confirm,
            ascii_only=self._ascii,
            id="mounts-panel",
        )

    @cached_property
    def stats(self) -> StatsPanel:
        return lazy_tabs.StatsPanel(self._service, ascii_only=self._ascii, id="stats")

    @property
    def is_complete(self) -> bool:
        return len(self._parts) > 1

    def on_mount(self) -> None:
        self.set_interval(GLANCE_EVERY_S, self._glance)

    def on_resize(self) -> None:
        self.post_message(KnownChanged())  # there may be room for pictures now, or none any more

    def _glance(self) -> None:
        """Draws the shell in the overview again, if it has changed."""
        if self._tab is not Tab.DETAILS or not self.is_complete or self._seen is None:
            return
        sandbox_id, lines, before = self._seen
        if self.app.screen is self.screen and self.shells.known_of(sandbox_id, lines) != before:
            self.post_message(KnownChanged())

    def compose(self) -> ComposeResult:
        yield self._bar
        yield self.details
        self.details.display = self._tab is Tab.DETAILS

    def complete(self) -> None:
        """Mounts the tabs that the first paint does not need."""
        if not self.is_attached or self.is_complete:
            return
        for tab, part in (
            (Tab.SHELLS, self.shells),
            (Tab.DESKTOP, self.desktop),
            (Tab.LOG, self.logs),
            (Tab.MOUNTS, self.mounts),
            (Tab.STATS, self.stats),
        ):
            self._parts[tab] = part
            part.display = tab is self._tab
            self.mount(part)

    @property
    def tab(self) -> Tab:
        return self._tab

    def choose(self, tab: Tab) -> None:
        """Shows another tab; for TREE all are hidden, since the tree lies over them."""
        if tab is self._tab:
            return
        self.complete()
        self._tab = tab
        for name, part in self._parts.items():
            part.display = name is tab
        self._below.hide()  # until the details are shown again

    def selected_mount(self, sandbox: SandboxView | None) -> MountFacts | None:
        """Returns the mount of a sandbox under the cursor of the mounts, if they are shown."""
        if self._tab is not Tab.MOUNTS or not self.is_complete:
            return None
        return self.mounts.selected_of(sandbox)

    @property
    def is_prefixed(self) -> bool:
        """Whether the next key is a command to the tab, since the prefix was typed."""
        if self._tab is Tab.SHELLS:
            return self.shells.prefixed
        return self._tab is Tab.DESKTOP and self.desktop.view.prefixed

    @property
    def can_focus_tab(self) -> bool:
        """Whether the tab that is shown has something to focus."""
        if self._tab is Tab.SHELLS:
            return self.shells.keeps_keys
        return self._tab is not Tab.DESKTOP or self.desktop.can_take_focus

    def pane_titled_at(self, x: int, y: int) -> Widget | None:
        """Returns the pane whose title is at that cell of the screen."""
        if self._tab is not Tab.SHELLS or not self.is_complete:
            return None
        space = self.shells.workspace
        return None if space is None else space.titled_at(x - space.region.x, y - space.region.y)

    def cover_changed(self) -> None:
        """Follows other screens that lie over this one now, or none any more."""
        if self.is_complete:
            self.desktop.view.adapt()
            self.shells.adapt()
            self._below.adapt()

    def focus_tab(self) -> bool:
        """Focuses the tab; returns False if it has nothing to focus."""
        self.complete()
        if self._tab is Tab.SHELLS:
            if not self.shells.keeps_keys:
                return False
            self.shells.focus_current()
        elif self._tab is Tab.DESKTOP:
            if not self.desktop.can_take_focus:
                return False
            self.screen.set_focus(self.desktop.view)
        elif self._tab is Tab.LOG:
            self.screen.set_focus(self.logs.view)
        elif self._tab is Tab.MOUNTS:
            self.screen.set_focus(self.mounts.table)
        elif self._tab is not Tab.TREE:
            self.screen.set_focus(self._parts[self._tab])
        return True

    def doer_of(self, scope: Scope) -> Doer | None:
        """Returns the tab that carries out the actions of a scope; None if no tab has it."""
        match scope:
            case Scope.LOG:
                return self.logs
            case Scope.MOUNTS:
                return self.mounts
            case Scope.DESKTOP:
                return self.desktop
            case Scope.PANES:
                return self.shells
        return None

    @property
    def doing(self) -> dict[str, str]:
        """The programs that run in sandboxes, by id: the program of the shell that had the focus
        last, else the last command that this app ran there."""
        found = last_commands(self._operations.ended)
        return found | self.shells.programs if self.is_complete else found

    def known_of(self, selection: Selection) -> Known:
        """Returns the app's knowledge of the selected sandbox besides its records on disk."""
        sandbox = selection.sandbox
        if sandbox is None:
            return NOTHING_KNOWN
        events = events_of(sandbox.id, self._events(), self._operations.ended)
        if not self.is_complete:
            return Known(events=events)
        lines = max(4, self.size.height - GLANCE_LESS)
        shells, glance = found = self.shells.known_of(sandbox.id, lines)
        self._seen = (sandbox.id, lines, found)
        return Known(
            shells=shells, glance=glance, events=events, changes=self._changes(sandbox, selection)
        )

    def _changes(self, sandbox: SandboxView, selection: Selection) -> Changes | None:
        """Returns the changed files; the disk is not looked at while the user types in a shell."""
        is_seen = self.is_attached and self.app.screen is self.screen
        if self._tab not in (Tab.DETAILS, Tab.TREE) or not is_seen:
            self._changed.stop()
            return None
        chosen = selection.checkpoint if selection.in_tree else None
        return self._changed.of(sandbox, chosen.id if chosen is not None else None)

    def show(
        self,
        world: World,
        selection: Selection,
        held: SandboxView | None = None,
        *,
        known: Known = NOTHING_KNOWN,
        beside: bool = False,
    ) -> None:
        """Shows the selection; the shells of ``held`` stay whatever is selected. ``known`` is about
        the selected sandbox; with ``beside``, its events are shown elsewhere."""
        sandbox = selection.sandbox
        if self._tab is Tab.DETAILS:
            self.details.show(world, selection, known, beside=beside)
            self._below.show(world, selection, known, has_live=self.is_complete)
        if not self.is_complete:
            return
        ids = {view.id for view in world.sandboxes}
        if held is None:
            self.shells.keep_only(ids)
            self.shells.show(sandbox)
        elif held.id in ids:
            self.shells.show(world.sandbox(held.id))
        else:
            self.shells.keep_only(ids | {held.id})
            self.shells.keep_deleted()
        self.desktop.show(sandbox if self._tab is Tab.DESKTOP else None)
        self.logs.show(sandbox if self._tab is Tab.LOG else None)
        if self._tab is Tab.MOUNTS:
            self.mounts.show(world, sandbox)
        self.stats.show(sandbox if self._tab is Tab.STATS else None)

    def show_bar(
        self,
        sandbox: SandboxView | None,
        edge: Edge,
        *,
        said: str = "",
        with_tree: bool,
        typing: bool,
    ) -> None:
        """Shows the line of tabs on the ``edge`` of the area, and the words ``said`` above; with
        ``typing``, it says that keys go to a shell."""
        with_desktop = sandbox is not None and sandbox.has_display
        found = tabs_of(self._tab, with_tree=with_tree, with_desktop=with_desktop)
        tabs = tuple((tab.value, LABELS.get(tab, tab.value.capitalize())) for tab in found)
        if typing and self.shells.keeps_keys:
            prefixed = self.shells.prefixed
            style = MUTED
            leads = self._typing_leads(sandbox or self.shells.typed_into, prefixed=prefixed)
        elif self._tab is Tab.DESKTOP and self.desktop.view.has_focus:
            prefixed, style = self.desktop.view.prefixed, MUTED
            leads = self._typing_leads(sandbox, prefixed=prefixed)
            if sandbox is not None and sandbox.state is Status.PAUSED and not prefixed:
                style = STYLES[Status.PAUSED.role]
                leads = self._paused_leads(sandbox)
        elif sandbox is not None:
            silent = silence_text(sandbox, time.time())
            style = STYLES["warning" if silent else sandbox.state.role]
            how = f"{sandbox.state.sign} {silent}" if silent else sandbox.state.text
            leads = (f"{sandbox.name} {how}", sandbox.name, sandbox.state.sign)
        else:
            style, leads = "", ()
        edge = replace(edge, framed=self._tab in FRAMED)
        title = said or self._title_beside(sandbox)
        self._bar.show(tabs, self._tab.value, leads, style, title=title, edge=edge)

    def _title_beside(self, sandbox: SandboxView | None) -> str:
        """Returns the title where the tab and the sandbox do not say it."""
        if self._tab is Tab.DETAILS:
            title = self.details.title
            return "" if sandbox is not None and title == sandbox.name else title
        return self.logs.kind.value if self._tab is Tab.LOG and self.is_complete else ""

    def _typing_leads(self, sandbox: SandboxView | None, *, prefixed: bool) -> tuple[str, ...]:
        """Returns texts that say whose shell has the keys and the mouse, and how to leave it; the
        longest first."""
        name = f"{sandbox.name} · " if sandbox is not None else ""
        mouse = "mouse: terminal · " if self._terminal.has_mouse else ""
        if self._tab is Tab.DESKTOP and self.desktop.records(sandbox):
            mouse += "recording · "
        prefix = self._app_keys.prefix.text
        if prefixed:
            return (f"{name}{mouse}{prefix} …", f"{prefix} …")
        help_ = self._app_keys.map.hint("help", Scope.PANES.value)
        leave = f"prefix {prefix}"
        return (
            f"{name}{mouse}{leave} · {prefix} {help_} shows its keys",
            f"{name}{mouse}{leave}",
            f"{mouse}{leave}",
            f"{mouse}{prefix} …",
        )

    def _paused_leads(self, sandbox: SandboxView) -> tuple[str, ...]:
        """Returns texts that say that a paused guest gets no keys; the longest first."""
        lost = "paused: what is typed is lost"
        prefix = self._app_keys.prefix.text
        return (
            f"{sandbox.name} · {lost} · prefix {prefix}",
            f"{lost} · prefix {prefix}",
            f"{lost} · {prefix} …",
            lost,
            "paused: keys are lost",
            "paused",
        )

    @on(TabBar.Chosen)
    def _tab_clicked(self, event: TabBar.Chosen) -> None:
        event.stop()
        self.screen.call_later(self.screen.run_action, f"tab('{event.tab}')")
