"""The first screen: sandboxes, images, details, and what can be done with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import DataTable, Input, Static

from quicksand_tui import losses
from quicksand_tui.actions import Scope, find_action, in_scope
from quicksand_tui.saves_view import jobs_text
from quicksand_tui.screens.base import ActionScreen, bindings_of, refuse_paste
from quicksand_tui.snapshot import (
    CloneSpec,
    CommandRecord,
    NewSpec,
    Panel,
    Purpose,
    Selection,
    Snapshot,
    State,
    Verb,
)
from quicksand_tui.text import plain
from quicksand_tui.view import (
    NO_IMAGES_TEXT,
    ORDERS,
    counts_text,
    empty_text,
    host_text,
    image_rows,
    plan_image_columns,
    plan_sandbox_columns,
    sandbox_rows,
)
from quicksand_tui.widgets.action_bar import ActionBar
from quicksand_tui.widgets.command_line import CommandLine
from quicksand_tui.widgets.details import Details
from quicksand_tui.widgets.panel import ListPanel

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp


USUAL_WIDTH = 70
"""Cells below which there is one column."""

TOP_USED = 4 + len("quicksand") + 4
"""Cells of the first line that are neither counts nor host."""


class MainScreen(ActionScreen):
    """Shows a snapshot; each action of the registry has its method ``do_<id>`` here."""

    scope = Scope.MAIN
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - declared by Textual
        (0, "-narrow"),
        (USUAL_WIDTH, "-usual"),
        (110, "-broad"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 - declared by Textual
        (0, "-tiny"),
        (13, "-low"),
        (20, "-middle"),
        (30, "-high"),
    ]
    AUTO_FOCUS = "#sandboxes KeyedTable"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of(in_scope(Scope.MAIN)),
        Binding("tab,shift+tab", "other_panel", show=False),
        Binding("1", "panel('sandboxes')", show=False),
        Binding("2", "panel('images')", show=False),
    ]

    def __init__(self, snapshot: Snapshot, *, ascii_only: bool) -> None:
        super().__init__()
        self._snapshot = snapshot
        self._ascii = ascii_only
        self._query = ""
        self._order = ORDERS[0]
        self._aim: Selection | None = None
        """What an action is about that is not about what the cursor is on."""
        self._wanted = ""
        """Name of a sandbox that the cursor should go to when it appears."""
        # Kept and not looked up: a snapshot may come when the screen is just being taken down.
        self._counts = Static(id="counts", markup=False)
        self._host = Static(id="host", markup=False)
        self._top = ("", "")
        self.sandboxes = ListPanel(
            "Sandboxes", plan_sandbox_columns, ascii_only=ascii_only, id="sandboxes"
        )
        self.images = ListPanel("Images", plan_image_columns, ascii_only=ascii_only, id="images")
        self._details = Details(ascii_only=ascii_only, id="details")
        self._command_line = CommandLine(ascii_only=ascii_only, id="command-line")
        self._actions = ActionBar(Scope.MAIN, id="actions")

    def compose(self) -> ComposeResult:
        with Horizontal(id="top"):
            yield Static(Content("quicksand"), id="brand", markup=False)
            yield self._counts
            yield self._host
        yield self.sandboxes
        with Horizontal(id="bottom"):
            yield self.images
            yield self._details
        yield self._command_line
        yield self._actions

    def on_mount(self) -> None:
        self.show(self._snapshot)

    @property
    def _app(self) -> QuicksandApp:
        return cast("QuicksandApp", self.app)

    @property
    def selection(self) -> Selection:
        """What the cursor is on."""
        if self._aim is not None:
            return self._aim
        panel = Panel.IMAGES if self.images.table.has_focus else Panel.SANDBOXES
        return Selection(
            panel=panel,
            sandbox=self._snapshot.sandbox(self.sandboxes.table.selected_key),
            image=self._snapshot.image(self.images.table.selected_key),
        )

    @property
    def visible_sandboxes(self) -> frozenset[str]:
        """Ids whose use of CPU and memory somebody can see."""
        selected = self.sandboxes.table.selected_key
        return self.sandboxes.table.visible_keys | ({selected} if selected else set())

    # Showing

    def show(self, snapshot: Snapshot) -> None:
        """Show another moment."""
        self._snapshot = snapshot
        self._show_top()
        self.sandboxes.show(
            sandbox_rows(snapshot, self._query, self._order),
            total=len(snapshot.sandboxes),
            query=self._query,
            order="" if self._order == ORDERS[0] else self._order,
            empty=empty_text(snapshot, self._query),
        )
        self.images.show(
            image_rows(snapshot),
            total=len(snapshot.images),
            query="",
            empty=NO_IMAGES_TEXT if snapshot.loaded else "",
        )
        self._go_to_wanted()
        self._show_selection()

    def _show_top(self) -> None:
        host = "" if self.size.width < USUAL_WIDTH else host_text(self._snapshot)
        doing = jobs_text(self._snapshot)
        if doing:
            # What is under way is worth more than what the host has left.
            host, doing = "", f" · {doing}"
        if self._snapshot.read_only:
            doing = f" · read-only{doing}"
        room = self.size.width - len(host) - TOP_USED
        top = (counts_text(self._snapshot, room - len(doing)) + doing, host)
        if top != self._top:
            self._top = top
            self._counts.update(self._text(top[0]))
            self._host.update(self._text(top[1]))

    def on_resize(self) -> None:
        self._show_top()

    def show_command(self, record: CommandRecord | None) -> None:
        self._command_line.show(record)

    def want(self, name: str) -> None:
        """Put the cursor on the sandbox called ``name``, now or when it appears."""
        self._wanted = name
        self._go_to_wanted()

    def _go_to_wanted(self) -> None:
        for view in self._snapshot.sandboxes:
            if self._wanted and view.name == self._wanted:
                if self.sandboxes.table.select(view.id) and not view.id.startswith("new:"):
                    self._wanted = ""
                return

    @on(DataTable.RowHighlighted)
    def _show_selection(self) -> None:
        selection = self.selection
        self._details.show(self._snapshot, selection)
        self._actions.show(self._snapshot, selection)

    def on_descendant_focus(self) -> None:
        self._show_selection()
        self.set_class(self.images.table.has_focus, "-images")

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Input

    def on_paste(self, event: events.Paste) -> None:
        self._app.tell(refuse_paste(event), severity="warning")

    @on(DataTable.RowSelected)
    def _row_selected(self, event: DataTable.RowSelected) -> None:
        event.stop()
        self.action_do("open")

    @on(DataTable.HeaderSelected, "#sandboxes KeyedTable")
    def _header_clicked(self, event: DataTable.HeaderSelected) -> None:
        if event.column_key.value in ORDERS:
            self._set_order(event.column_key.value)

    def _set_order(self, order: str) -> None:
        self._order = order
        self.show(self._snapshot)

    def action_other_panel(self) -> None:
        self._go_to(self.sandboxes if self.images.table.has_focus else self.images)

    def action_panel(self, name: str) -> None:
        self._go_to(self.images if name == self.images.id else self.sandboxes)

    def _go_to(self, panel: ListPanel) -> None:
        # Hidden in a narrow terminal, it must be there before it can be focused.
        self.set_class(panel is self.images, "-images")
        panel.table.focus()

    def action_do(self, action_id: str) -> None:
        """Carry out an action of the registry, or say why not."""
        if self._app.shell_opens or self.app.screen is not self:
            return  # what is typed now is meant for the shell, or for the dialog that opens
        action = find_action(action_id)
        reason = action.disabled_reason(self._snapshot, self.selection)
        if reason is not None:
            self._app.tell(reason, severity="warning")
            return
        getattr(self, f"do_{action.id}")()

    def act(self, action_id: str, aim: Selection) -> None:
        """Carry out an action as its key does, about ``aim`` instead of what the cursor is on."""
        self._aim = aim
        try:
            self.action_do(action_id)
        finally:
            self._aim = None

    # Actions, by the registry's ids

    def do_command(self) -> None:
        self._app.open_command_line()

    def do_new(self) -> None:
        selection = self.selection
        image = selection.image.name if selection.image is not None else None
        self._app.ask_for_new(image if selection.panel is Panel.IMAGES else None, self.create)

    def create(self, spec: NewSpec | None) -> None:
        """Start a new sandbox, with the cursor on it."""
        if spec is None:
            return
        if self._query:
            self._set_query("")
        self.sandboxes.table.focus()
        self._app.operations.create(spec)
        self.want(spec.name)

    def do_open(self) -> None:
        selection = self.selection
        if selection.panel is Panel.IMAGES:
            self.do_new()
        elif selection.sandbox is not None and selection.sandbox.state is State.RUNNING:
            self.do_shell()
        elif selection.sandbox is not None and selection.sandbox.state is State.PAUSED:
            self.do_resume()
        else:
            self.do_start()

    def do_shell(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.open_panes(sandbox)

    def do_full_shell(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.open_shell(sandbox)

    def do_start(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.start(sandbox)

    def do_clone(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.clone(sandbox, CloneSpec())

    def do_stop(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.stop(sandbox)

    def do_pause(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.pause(sandbox)

    def do_resume(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.resume(sandbox)

    def do_kill(self) -> None:
        sandbox = self.selection.sandbox
        if sandbox is None:
            return
        self._app.confirm(
            f"Kill {sandbox.name}?",
            losses.of_kill(sandbox),
            "Kill",
            lambda: self._app.operations.kill(sandbox),
            undo=f"{self._snapshot.keymap.hint('stop')} stops it gently instead.",
        )

    def do_save(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.ask_for_save(sandbox)

    def do_delete(self) -> None:
        sandbox = self.selection.sandbox
        if sandbox is None:
            return
        self._app.confirm(
            f"Delete {sandbox.name}?",
            losses.of_delete(sandbox, self._snapshot.taken),
            "Delete",
            lambda: self._app.operations.delete(sandbox),
        )

    def do_checkpoint(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.ask_for_checkpoint(sandbox)

    def do_undo(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.undo(sandbox)

    def do_revert(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.open_tree(sandbox, Purpose.REVERT)

    def do_start_at(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.open_tree(sandbox, Purpose.START)

    def do_saves(self) -> None:
        self._app.open_saves()

    def do_log(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.open_log(sandbox)

    def do_cancel(self) -> None:
        if (sandbox := self.selection.sandbox) is not None:
            self._app.operations.cancel(sandbox.id)

    def do_refresh(self) -> None:
        self._app.refresh_now(fresh=True)

    def do_order(self) -> None:
        self._set_order(ORDERS[(ORDERS.index(self._order) + 1) % len(ORDERS)])

    def do_copy(self) -> None:
        selection = self.selection
        image = selection.panel is Panel.IMAGES
        chosen = selection.image if image else selection.sandbox
        if chosen is not None:
            self._app.copy_to_clipboard(chosen.name)
            self._app.tell(f"Copied {chosen.name}, if the terminal allows it")

    def do_commands(self) -> None:
        self._app.open_commands()

    def do_palette(self) -> None:
        self._app.action_command_palette()

    def do_help(self) -> None:
        self._app.open_help()

    def do_quit(self) -> None:
        self._app.leave()

    # Filter

    def filter_by(self, words: str) -> None:
        """Show what matches these."""
        self._set_query(words)

    def do_filter(self) -> None:
        field = self._filter_field
        if field is None:
            field = Input(
                self._query,
                classes="filter",
                select_on_focus=False,
                placeholder="words, !word, state:running, image:debian",
            )
            self.sandboxes.mount(field)
        field.focus()

    @property
    def _filter_field(self) -> Input | None:
        """Where the filter is typed; None unless it is open."""
        return next(iter(self.query(".filter").results(Input)), None)

    def _close_filter(self) -> None:
        if (field := self._filter_field) is not None:
            self.sandboxes.table.focus()
            field.remove()

    def do_escape(self) -> None:
        """One step back: out of the filter, then out of a start that is under way."""
        if self._filter_field is not None or self._query:
            self._set_query("")
            return
        sandbox = self.selection.sandbox
        job = self._snapshot.job(sandbox.id) if sandbox is not None else None
        if job is not None and job.verb is Verb.START and not job.cancelling:
            self._app.operations.cancel(job.sandbox_id)
        elif self.images.table.has_focus:
            self.action_other_panel()

    def _set_query(self, query: str) -> None:
        self._close_filter()
        self._query = query
        self.show(self._snapshot)

    @on(Input.Changed, ".filter")
    def _filter_live(self, event: Input.Changed) -> None:
        if event.input is self._filter_field and event.value != self._query:
            self._query = event.value
            self.show(self._snapshot)

    @on(Input.Submitted, ".filter")
    def _filter_done(self) -> None:
        self._close_filter()
