"""The tree of a sandbox's checkpoints: choose one to go back to, to start at, or to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import DataTable, Static

from quicksand_tui import losses
from quicksand_tui.actions import Scope, find_action, in_scope
from quicksand_tui.forest import FANCY, PLAIN
from quicksand_tui.keymap import Keymap
from quicksand_tui.past import CheckpointView
from quicksand_tui.screens.base import ActionScreen, bindings_of, refuse_paste
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.snapshot import Purpose, SandboxView, Selection, Snapshot
from quicksand_tui.text import age_text, clip, pause_text, plain, size_text
from quicksand_tui.tree_view import plan_tree_columns, tree_lines, tree_rows
from quicksand_tui.view import ROLES, state_text
from quicksand_tui.widgets.action_bar import ActionBar
from quicksand_tui.widgets.facts import STYLES, Facts, Line
from quicksand_tui.widgets.panel import ListPanel

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp

LABELS = {Purpose.REVERT: "revert", Purpose.START: "start there"}
TITLE_CELLS = 60
EMPTY = "No checkpoints are left.\nesc goes back."


class TreeScreen(ActionScreen):
    """The tree of one sandbox. The registry's actions of `Scope.TREE` are its keys."""

    scope = Scope.TREE
    CSS_PATH = "tree.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (17, "-usual")]  # noqa: RUF012 - declared by Textual
    AUTO_FOCUS = "KeyedTable"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.TREE))]

    def __init__(
        self, sandbox_id: str, snapshot: Snapshot, purpose: Purpose, *, ascii_only: bool
    ) -> None:
        super().__init__()
        self._id = sandbox_id
        self._snapshot = snapshot
        self._purpose = purpose
        self._ascii = ascii_only
        self._standing = Static(id="standing", markup=False)
        self._panel = ListPanel(
            "Checkpoints", plan_tree_columns, ascii_only=ascii_only, id="checkpoints"
        )
        self._about = Facts(ascii_only=ascii_only, id="about")
        self._consequence = Static(id="consequence", markup=False)
        self._actions = ActionBar(Scope.TREE, labels={"go": LABELS[purpose]}, id="actions")
        self._begun = False
        """Whether the cursor was put where the sandbox stands."""

    def compose(self) -> ComposeResult:
        yield self._standing
        yield self._panel
        yield self._about
        yield self._consequence
        yield self._actions

    def on_mount(self) -> None:
        self._consequence.update(self._text(consequence(self._purpose, self._snapshot.keymap)))
        self._show()

    def on_resize(self) -> None:
        # Rows are there only when the table knows its width.
        self.call_after_refresh(self._begin)

    @property
    def _app(self) -> QuicksandApp:
        return cast("QuicksandApp", self.app)

    @property
    def sandbox(self) -> SandboxView | None:
        """None if it is gone."""
        return self._snapshot.sandbox(self._id)

    @property
    def selection(self) -> Selection:
        """What the cursor is on."""
        sandbox = self.sandbox
        made = sandbox.past.find(self._panel.table.selected_key) if sandbox is not None else None
        return Selection(sandbox=sandbox, checkpoint=made)

    # Showing

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: maybe somebody else has taken a checkpoint."""
        self._snapshot = snapshot
        if self.is_mounted:
            self._show()

    def on_screen_resume(self) -> None:
        self._show()

    def _show(self) -> None:
        sandbox = self.sandbox
        if sandbox is None:
            if self.app.screen is self:
                self._app.tell("the sandbox is gone", severity="warning")
                self.dismiss(None)
            return
        marks = PLAIN if self._ascii else FANCY
        rows = tree_rows(tree_lines(sandbox.past, self._snapshot.taken, marks))
        self._panel.show(rows, total=len(rows), query="", empty=EMPTY)
        self._standing.update(self._standing_of(sandbox))
        self._begin()
        self._show_selection()

    def _begin(self) -> None:
        """Put the cursor where the sandbox stands, once."""
        sandbox = self.sandbox
        if not self._begun and sandbox is not None and self._panel.table.row_count:
            self._begun = True
            self._panel.table.select(sandbox.past.head or "")

    def _standing_of(self, sandbox: SandboxView) -> Content:
        job = self._snapshot.job(sandbox.id)
        doing = f" · {job.progress}" if job is not None and job.progress else ""
        unknown = f" · nobody knows where it stands: {sandbox.past.error}"
        return Content.assemble(
            self._text(sandbox.name).stylize("bold"),
            "  ",
            self._text(state_text(sandbox.state)).stylize(STYLES[ROLES[sandbox.state]]),
            self._text(doing),
            self._text(unknown if sandbox.past.error else "").stylize(STYLES["error"]),
        )

    @on(DataTable.RowHighlighted)
    def _show_selection(self) -> None:
        selection = self.selection
        made = selection.checkpoint
        if made is not None:
            title = f"{clip(made.tag, TITLE_CELLS)}{' (automatic)' if made.auto else ''}"
            self._about.show_lines(title, describe_checkpoint(made, self._snapshot.taken))
        else:
            self._about.show_lines("", [])
        self._actions.show(self._snapshot, selection)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Input

    def on_paste(self, event: events.Paste) -> None:
        self._app.tell(refuse_paste(event), severity="warning")

    @on(DataTable.RowSelected)
    def _row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.action_do("go")

    def action_do(self, action_id: str) -> None:
        """Carry out an action of the registry, or say why not."""
        if self.app.screen is not self:
            return  # what is typed now is meant for the dialog that opens
        action = find_action(action_id, Scope.TREE)
        reason = action.disabled_reason(self._snapshot, self.selection)
        if reason is not None:
            self._app.tell(reason, severity="warning")
            return
        getattr(self, f"do_{action.id}")()

    # Actions, by the registry's ids

    def do_go(self) -> None:
        """Go to the selected checkpoint in the way for which the tree was opened: if the sandbox
        has stopped or started since, the other way loses something that nobody was told of."""
        selection = self.selection
        sandbox, made = selection.sandbox, selection.checkpoint
        if sandbox is None or made is None:
            return
        opened_by = find_action(self._purpose.value)
        reason = opened_by.disabled_reason(self._snapshot, selection)
        if reason is not None:
            self._app.tell(reason, severity="warning")
            return
        begin = self._app.operations
        (begin.revert if self._purpose is Purpose.REVERT else begin.start_at)(sandbox, made)
        self.dismiss(None)

    def do_remove(self) -> None:
        selection = self.selection
        sandbox, made = selection.sandbox, selection.checkpoint
        if sandbox is None or made is None:
            return
        self._app.confirm(
            f"Delete the checkpoint {clip(made.tag, TITLE_CELLS // 2)}?",
            losses.of_checkpoint(sandbox, made, self._snapshot.taken),
            "Delete",
            lambda: self._app.operations.delete_checkpoint(sandbox, made),
        )

    def do_checkpoint(self) -> None:
        if (sandbox := self.sandbox) is not None:
            self._app.ask_for_checkpoint(sandbox)

    def do_undo(self) -> None:
        if (sandbox := self.sandbox) is not None:
            self._app.operations.undo(sandbox)

    def do_command(self) -> None:
        self._app.open_command_line()

    def do_help(self) -> None:
        self.app.push_screen(HelpScreen(Scope.TREE, ascii_only=self._ascii))

    def do_back(self) -> None:
        self.dismiss(None)


def consequence(purpose: Purpose, keymap: Keymap) -> str:
    """What going there means, said before it is done."""
    if purpose is Purpose.START:
        return (
            "enter starts it there. Its disk as it is now is kept in the tree: starting there "
            "boots from it."
        )
    undo = keymap.hint("undo", Scope.TREE.value)
    return f"enter goes back to it at once. The present is kept: {undo} comes back to it."


def describe_checkpoint(made: CheckpointView, now: float) -> list[Line]:
    """All there is to know about one."""
    if made.error:
        return [("State", [("✗ broken", "error")]), ("Why", [(made.error, "error")])]
    age = "" if made.created is None else f"{age_text(now - made.created)} ago"
    disk_only = made.tier == "disk"
    pause = "" if disk_only else f" · stood still for {pause_text(made.pause_s)}"
    cost = f"{pause} · {size_text(made.written)} written"
    lines: list[Line] = [("Taken", [(age, ""), (cost, "muted")])]
    if made.auto:
        by = "a start at a checkpoint" if disk_only else "a revert"
        lines.append(("By", [(f"{by}, so that it can be undone", "")]))
    if made.note:
        lines.append(("Note", [(made.note, "")]))
    if clip(made.tag, TITLE_CELLS) != made.tag:
        lines.append(("Tag", [(made.tag, "")]))  # the title has no room for it
    if made.tier_note:
        lines.append(("Tier", [(f"{made.tier}: {made.tier_note}", "warning")]))
    return lines
