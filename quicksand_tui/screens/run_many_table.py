"""A screen to run a command in many sandboxes, with a table of the results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Input, Label, Static

from quicksand_tui.jobs.run_many import AT_ONCE, TIMEOUT_S, unwatched
from quicksand_tui.kit.base import Dialog, tell
from quicksand_tui.model.jobs import RunState
from quicksand_tui.model.text import plain
from quicksand_tui.views.job_rows import describe_run, plan_run_columns, run_row
from quicksand_tui.widgets.inputs import LineInput
from quicksand_tui.widgets.log_view import LogView
from quicksand_tui.widgets.long_table import LongTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from quicksand_tui.jobs.run_many import RunMany
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.model.world import World
    from quicksand_tui.views.tables import Row

TYPING = "enter runs it · tab goes to the table · esc leaves"
RUNNING = "enter shows output · c cancels · esc leaves it running"
ENDED = "enter shows output · r again · tab to the command · esc leaves"
NOTE = f"As root in /, {AT_ONCE} at a time; each is ended after {TIMEOUT_S:.0f} s."
TICK_S = 0.5
"""Seconds between two updates of the running times."""
COMMAND_MAX = 2000
"""The longest command in characters."""


class RunManyScreen(Dialog[None]):
    """Runs a command in many sandboxes. Escape leaves; a running command goes on, and the next such
    screen shows it."""

    shows_outcome = True
    CSS_PATH = "run_many.tcss"
    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", show=False),
        Binding("r", "again", show=False),
        Binding("c", "cancel", show=False),
        Binding("q", "leave", show=False),
        Binding("down,tab", "app.focus_next", show=False),
        Binding("shift+tab", "app.focus_previous", show=False),
    ]

    def __init__(
        self,
        many: RunMany,
        views: Sequence[SandboxView],
        world: World,
        keys: Keys,
        *,
        command: str,
        ascii_only: bool,
    ) -> None:
        """``many`` may be running a command in ``views``, or may have run it."""
        super().__init__()
        self._ids = tuple(view.id for view in views)
        self._views = tuple(views)
        self._snapshot = world
        self._app_keys = keys
        self._first = command
        self._ascii = ascii_only
        self._table = LongTable(plan_run_columns, ascii_only=ascii_only)
        self._field = LineInput(
            command,
            placeholder="a command, such as: uptime; df -h /",
            compact=True,
            max_length=COMMAND_MAX,
            id="what-runs",
        )
        self._many = many
        self._keys = ""

    def compose(self) -> ComposeResult:
        with Vertical(id="run-many") as box:
            count = len(self._ids)
            title = f"Run in {count} sandboxes" if count != 1 else f"Run in {self._views[0].name}"
            box.border_title = self._text(title)
            with Horizontal(id="what"):
                yield Label("$ ", markup=False)
                yield self._field
            yield self._table
            yield Static(self._text(NOTE), markup=False, id="terms")

    def on_mount(self) -> None:
        self._many.watcher = self._show
        self._many.prepare(self._views)
        self.set_focus(self._table if self._many.command else self._field)
        self._show()
        # For the seconds of running commands; unchanged rows are not drawn.
        self.set_interval(TICK_S, self._show)

    def on_unmount(self) -> None:
        self._many.watcher = unwatched

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    # Showing

    def update_world(self, world: World) -> None:
        """Follows the world, in which a sandbox may have stopped."""
        self._snapshot = world
        known = {view.id: view for view in world.sandboxes}
        self._views = tuple(known.get(view.id, view) for view in self._views)
        self._many.prepare(self._views)
        self._show()

    def _show(self) -> None:
        if not self.is_attached:
            return
        self._table.show([run.sandbox_id for run in self._many.runs], self._row, ())
        self._show_keys()

    def _row(self, key: str) -> Row:
        run = self._many.find(key)
        assert run is not None
        return run_row(run, time.monotonic())

    @on(LongTable.Moved)
    def _show_keys(self) -> None:
        keys = TYPING if self._field.has_focus else ENDED
        if self._many.is_running:
            keys = RUNNING
        if keys != self._keys:
            self._keys = keys
            self.query_one("#run-many").border_subtitle = self._text(keys)

    def on_descendant_focus(self) -> None:
        self._show_keys()

    # Running

    @on(Input.Submitted)
    def _submitted(self) -> None:
        self._begin()

    def action_again(self) -> None:
        self._app_keys.carefully(self._begin)

    def _begin(self) -> None:
        """Runs the command in all sandboxes that are running."""
        command = self._field.value.strip()
        many = self._many
        if many.is_running:
            tell(self, "it is running: c cancels it", severity="warning")
        elif not command:
            self.set_focus(self._field)
            tell(self, "type a command first", severity="warning")
        else:
            self.set_focus(self._table)
            many.begin(self._views, command)
            if not many.is_running:
                tell(self, "none of these runs", severity="warning")
            self._show()

    @on(LongTable.Opened)
    def action_open(self) -> None:
        """Shows the output of the command in the selected sandbox."""
        run = self._many.find(self._table.selected_key or "")
        if run is None:
            return
        if run.state in (RunState.READY, RunState.WAITING, RunState.RUNNING):
            tell(self, f"{run.name}: there is nothing to show yet", severity="warning")
            return
        title, lines = describe_run(run)
        self.app.push_screen(OutputScreen(title, lines, ascii_only=self._ascii))

    def action_cancel(self) -> None:
        if not self._many.is_running:
            tell(self, "no command is running", severity="warning")
            return
        self._app_keys.carefully(self._many.cancel)

    def action_leave(self) -> None:
        self._app_keys.carefully(self._leave)

    def _leave(self) -> None:
        self.dismiss(None)


class OutputScreen(Dialog[None]):
    """Shows the output of one sandbox, which the caller has sanitised."""

    CSS_PATH = "run_many.tcss"
    AUTO_FOCUS = "LogView"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter", "leave", show=False),
        Binding("y", "copy", show=False),
    ]

    def __init__(self, title: str, lines: Sequence[str], *, ascii_only: bool) -> None:
        super().__init__()
        self._title = title
        self._lines = [plain(line) for line in lines] if ascii_only else [*lines]
        self._ascii = ascii_only
        self._view = LogView(id="output")
        self._view.following = False

    def compose(self) -> ComposeResult:
        keys = "y copies · esc closes"
        self._view.border_title = Content(plain(self._title) if self._ascii else self._title)
        self._view.border_subtitle = Content(plain(keys) if self._ascii else keys)
        yield self._view

    def on_mount(self) -> None:
        # To the view, an empty line at the end means that the last one is complete.
        self._view.append([*self._lines, ""])

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(self._lines))
        self.notify("Copied, if the terminal allows it", markup=False, timeout=3)
