"""The shells of one sandbox, beside each other on the whole screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions import Scope, find_action, in_scope
from quicksand_tui.keymap import key_text
from quicksand_tui.panes.layout import Side, Way
from quicksand_tui.panes.link import LinkState
from quicksand_tui.panes.pane import Pane
from quicksand_tui.panes.workspace import Workspace
from quicksand_tui.screens.base import ActionScreen
from quicksand_tui.snapshot import Purpose, SandboxView, Selection, Service, Snapshot, State
from quicksand_tui.text import plain
from quicksand_tui.view import state_text
from quicksand_tui.widgets.action_bar import ActionBar

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp


class PanesScreen(ActionScreen):
    """Keys go to the guest; those behind the prefix are the registry's of `Scope.PANES`. The app
    keeps the screen when it is left: its shells run on."""

    scope = Scope.PANES
    CSS_PATH = "panes.tcss"

    def __init__(
        self,
        service: Service,
        sandbox: SandboxView,
        snapshot: Snapshot,
        *,
        sessions: tuple[str, ...] = (),
        ascii_only: bool,
    ) -> None:
        super().__init__()
        self._service = service
        self._sandbox = sandbox
        self._snapshot = snapshot
        self._sessions = sessions
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        yield Static(markup=False, id="top")
        yield Workspace(
            self._sandbox.id,
            self._service.open_terminal,
            sessions=self._sessions,
            ascii_only=self._ascii,
        )
        yield ActionBar(Scope.PANES, id="actions")

    @property
    def _app(self) -> QuicksandApp:
        return cast("QuicksandApp", self.app)

    @property
    def workspace(self) -> Workspace:
        return self.query_one(Workspace)

    @property
    def selection(self) -> Selection:
        return Selection(sandbox=self._sandbox)

    def on_mount(self) -> None:
        self.update_snapshot(self._snapshot)

    def on_screen_resume(self) -> None:
        self.workspace.focus_current()
        self.call_after_refresh(self._app.update_raw)

    def on_screen_suspend(self) -> None:
        self._app.update_raw()

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: show the sandbox's new state."""
        self._snapshot = snapshot
        found = snapshot.sandbox(self._sandbox.id)
        if found is not None:
            self._sandbox = found
        if self.is_mounted:
            self.query_one(ActionBar).show(snapshot, self.selection)
            self._show_top()

    @on(Pane.Changed)
    def _show_top(self) -> None:
        self._app.update_raw()
        pane = self.workspace.current
        prefixed = pane is not None and pane.prefixed
        prefix, keymap = self._app.prefix.text, self._snapshot.keymap
        hint = f"{prefix} and a key; {keymap.hint('help', Scope.PANES.value)} shows all"
        title = f" {self._sandbox.name} · {state_text(self._sandbox.state)} · "
        text = Content.assemble(title, (f"{prefix} …", "reverse") if prefixed else (hint, "dim"))
        self.query_one("#top", Static).update(Content(plain(text.plain)) if self._ascii else text)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()  # no pane has the focus: there is nobody to paste it to

    # Keys behind the prefix

    @on(Pane.Prefixed)
    def _do_prefixed(self, event: Pane.Prefixed) -> None:
        keymap, prefix = self._snapshot.keymap, self._app.prefix
        meant = (a for a in in_scope(Scope.PANES) if event.key in keymap.keys_of(a))
        action = next(meant, None)
        if event.key == prefix.key:
            event.pane.type(prefix.data)
        elif action is None:
            shows = f"{prefix.text} {keymap.hint('help', Scope.PANES.value)} shows what there is"
            self._app.tell(f"{prefix.text} {key_text(event.key)} does nothing; {shows}")
        else:
            self.action_do(action.id)
        # By then the focus is where the command has put it.
        self.call_after_refresh(self._app.command_done)

    def action_do(self, action_id: str) -> None:
        """Carry out an action of the registry, or say why it is not possible."""
        action = find_action(action_id, Scope.PANES)
        reason = action.disabled_reason(self._snapshot, self.selection)
        if reason is not None:
            self._app.tell(reason, severity="warning")
            return
        getattr(self, f"do_{action_id}")()

    def do_split_beside(self) -> None:
        self._split(Way.BESIDE)

    def do_split_below(self) -> None:
        self._split(Way.BELOW)

    def _split(self, way: Way) -> None:
        if not self.workspace.split(way):
            self._app.tell("There is no room for another pane here", severity="warning")

    def do_next(self) -> None:
        self.workspace.go_on()

    def do_before(self) -> None:
        self.workspace.go_on(-1)

    def do_go_left(self) -> None:
        self.workspace.go(Side.LEFT)

    def do_go_right(self) -> None:
        self.workspace.go(Side.RIGHT)

    def do_go_up(self) -> None:
        self.workspace.go(Side.UP)

    def do_go_down(self) -> None:
        self.workspace.go(Side.DOWN)

    def do_line_left(self) -> None:
        self.workspace.move_line(Side.LEFT)

    def do_line_right(self) -> None:
        self.workspace.move_line(Side.RIGHT)

    def do_line_up(self) -> None:
        self.workspace.move_line(Side.UP)

    def do_line_down(self) -> None:
        self.workspace.move_line(Side.DOWN)

    def do_look_back(self) -> None:
        if (pane := self.workspace.current) is not None:
            pane.look_back(max(1, pane.size.height // 2))
            if not pane.back:
                self._app.tell("Nothing has scrolled off yet")

    def do_zoom(self) -> None:
        self.workspace.toggle_zoom()

    def do_swap_before(self) -> None:
        self.workspace.swap(-1)

    def do_swap_next(self) -> None:
        self.workspace.swap(1)

    def do_even(self) -> None:
        self.workspace.even_out()

    def do_broadcast(self) -> None:
        self.workspace.toggle_broadcast()

    def do_checkpoint(self) -> None:
        self._app.ask_for_checkpoint(self._sandbox)

    def do_revert(self) -> None:
        self._app.open_tree(self._sandbox, Purpose.REVERT)

    def do_undo(self) -> None:
        self._app.operations.undo(self._sandbox)

    def do_close(self) -> None:
        pane = self.workspace.current
        if pane is None:
            return
        if pane.status.state is not LinkState.OPEN or self._sandbox.state is not State.RUNNING:
            self._end(pane)
            return
        title = pane.terminal.title or "The shell"
        self._app.confirm(
            "End this shell?",
            (f"{title}: what runs in it ends",),
            "End",
            lambda: self._end(pane),
            undo=f"{self._app.prefix.text} {self._snapshot.keymap.hint('back', Scope.PANES.value)} "
            "leaves it running.",
        )

    def _end(self, pane: Pane) -> None:
        pane.end()
        self.workspace.close(pane)

    @on(Workspace.Emptied)
    def _leave_for_good(self) -> None:
        self._app.forget_panes(self._sandbox.id)

    def do_command(self) -> None:
        self._app.open_command_line()

    def do_help(self) -> None:
        from quicksand_tui.screens.help import HelpScreen

        self.app.push_screen(HelpScreen(Scope.PANES, ascii_only=self._ascii))

    def do_back(self) -> None:
        self._app.leave_panes()
