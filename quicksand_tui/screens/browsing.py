"""What the screens of saves and of the trash share: a long list, and what is known of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.actions import find_action
from quicksand_tui.saves_reasons import job_to_cancel
from quicksand_tui.saves_view import counts_text, jobs_text
from quicksand_tui.screens.base import ActionScreen, refuse_paste
from quicksand_tui.text import plain
from quicksand_tui.widgets.action_bar import ActionBar
from quicksand_tui.widgets.browser import Browser, Keyed, Listing
from quicksand_tui.widgets.command_line import CommandLine
from quicksand_tui.widgets.facts import Facts, Line

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp
    from quicksand_tui.snapshot import Snapshot

T = TypeVar("T", bound=Keyed)


class BrowsingScreen(ActionScreen, Generic[T]):
    """A `Browser`, details of what the cursor is on, what is under way, the last command, keys."""

    CSS_PATH = "saves.tcss"
    VERTICAL_BREAKPOINTS = [(0, "-low"), (17, "-usual"), (30, "-high")]  # noqa: RUF012
    AUTO_FOCUS = "LongTable"
    listing: ClassVar[Listing[T]]
    shows_saves = True

    def __init__(self, snapshot: Snapshot, *, begin_with: str = "", ascii_only: bool) -> None:
        """``begin_with``: key of where the cursor is at first, if that is listed."""
        super().__init__()
        self._begin_with = begin_with
        self.snapshot = snapshot
        self._ascii = ascii_only
        self._counts = Static(id="counts", markup=False)
        self.browser: Browser[T] = Browser(self.listing, ascii_only=ascii_only, id="browser")
        self._about = Facts(ascii_only=ascii_only, id="about")
        same = find_action("refresh", self.scope).command
        self._command_line = CommandLine(ascii_only=ascii_only, first=same, id="command-line")
        self._actions = ActionBar(self.scope, id="actions")
        self._counted = ""

    def compose(self) -> ComposeResult:
        yield self._counts
        yield self.browser
        yield self._about
        yield self._command_line
        yield self._actions

    def on_mount(self) -> None:
        self._show()
        self.browser.table.select(self._begin_with)

    @property
    def tui(self) -> QuicksandApp:
        return cast("QuicksandApp", self.app)

    # Showing

    def things(self) -> Sequence[T]:
        """All that are listed."""
        raise NotImplementedError

    def empty_text(self, query: str) -> str:
        """What is said where nothing is listed."""
        raise NotImplementedError

    def describe(self, thing: T) -> tuple[str, list[Line]]:
        """A title, and all there is to know."""
        raise NotImplementedError

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed."""
        self.snapshot = snapshot
        if self.is_mounted:
            self._show()

    def _show(self) -> None:
        self.browser.show(self.things(), self.snapshot, self.empty_text)
        self._show_counts()
        self._show_selection()
        log = self.tui.operations.log
        self._command_line.show(log[-1] if log else None)

    def _show_counts(self) -> None:
        jobs = jobs_text(self.snapshot)
        mark = "read-only" if self.snapshot.read_only else ""
        text = " · ".join(part for part in (mark, jobs, counts_text(self.snapshot.saves)) if part)
        if text != self._counted:
            self._counted = text
            self._counts.update(Content(plain(text) if self._ascii else text), layout=False)

    @on(Browser.Moved)
    def _show_selection(self) -> None:
        chosen = self.browser.selected
        title, lines = self.describe(chosen) if chosen is not None else ("", [])
        self._about.show_lines(title, lines)
        self._actions.show(self.snapshot, self.selection)

    def on_descendant_focus(self) -> None:
        self._actions.show(self.snapshot, self.selection)

    # Input

    def on_paste(self, event: events.Paste) -> None:
        self.tui.tell(refuse_paste(event), severity="warning")

    def action_do(self, action_id: str) -> None:
        if self.app.screen is not self:
            return  # what is typed now is meant for the dialog that opens
        action = find_action(action_id, self.scope)
        reason = action.disabled_reason(self.snapshot, self.selection)
        if reason is not None:
            self.tui.tell(reason, severity="warning")
            return
        getattr(self, f"do_{action.id}")()

    # Actions that both have, by the registry's ids

    def do_cancel(self) -> None:
        if (job := job_to_cancel(self.snapshot, self.selection)) is not None:
            self.tui.operations.cancel(job.sandbox_id)

    def do_mark(self) -> None:
        self.browser.toggle_mark()

    def do_mark_all(self) -> None:
        self.browser.toggle_all()

    def do_filter(self) -> None:
        self.browser.open_filter()

    def do_order(self) -> None:
        self.browser.step_order()

    def do_refresh(self) -> None:
        self.tui.refresh_now(fresh=True)

    def do_commands(self) -> None:
        self.tui.dialogs.open_commands()

    def do_jobs(self) -> None:
        self.tui.dialogs.open_jobs()

    def do_command(self) -> None:
        self.tui.dialogs.open_command_line()

    def do_palette(self) -> None:
        self.tui.action_command_palette()

    def do_help(self) -> None:
        self.tui.dialogs.open_help(self.scope)

    def do_back(self) -> None:
        if not self.browser.step_back():
            self.dismiss(None)

    def filter_by(self, words: str) -> None:
        """Show what matches these."""
        self.browser.filter_by(words)

    def copy(self, names: Sequence[str]) -> None:
        self.tui.copy_to_clipboard("\n".join(names))
        what = names[0] if len(names) == 1 else f"{len(names)} names"
        self.tui.tell(f"Copied {what}, if the terminal allows it")
