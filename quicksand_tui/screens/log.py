"""What the guest wrote to its console, and QEMU to its stderr, as it comes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Input

from quicksand_tui.actions import Scope, find_action, in_scope
from quicksand_tui.screens.base import ActionScreen, bindings_of, refuse_paste
from quicksand_tui.screens.help import HelpScreen
from quicksand_tui.snapshot import LogKind, LogSource, SandboxView, Selection, Service, Snapshot
from quicksand_tui.text import plain, sanitise_lines
from quicksand_tui.view import state_text
from quicksand_tui.widgets.action_bar import ActionBar
from quicksand_tui.widgets.log_view import LogView

if TYPE_CHECKING:
    from quicksand_tui.application import QuicksandApp

POLL_S = 0.5

TITLES = {LogKind.CONSOLE: "console", LogKind.QEMU: "QEMU's messages"}


class LogScreen(ActionScreen):
    """The log of one sandbox. The registry's actions of `Scope.LOG` are its keys."""

    scope = Scope.LOG
    CSS_PATH = "log.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of(in_scope(Scope.LOG)),
        Binding("shift+tab", "do('kind')", show=False),
    ]

    def __init__(
        self, service: Service, sandbox: SandboxView, snapshot: Snapshot, *, ascii_only: bool
    ) -> None:
        super().__init__()
        self._service = service
        self._sandbox = sandbox
        self._snapshot = snapshot
        self._ascii = ascii_only
        self._kind = LogKind.CONSOLE

    def compose(self) -> ComposeResult:
        yield LogView(id="log")
        yield Input(placeholder="search", id="search", compact=True)
        yield ActionBar(Scope.LOG, id="actions")

    def on_mount(self) -> None:
        self.query_one("#search").display = False
        self._view.focus()
        self.query_one(ActionBar).show(self._snapshot, Selection(sandbox=self._sandbox))
        self._follow()

    @property
    def selection(self) -> Selection:
        """The sandbox whose log it is."""
        return Selection(sandbox=self._sandbox)

    @property
    def _view(self) -> LogView:
        return self.query_one(LogView)

    def update_snapshot(self, snapshot: Snapshot) -> None:
        """The world has changed: show the sandbox's new state."""
        self._snapshot = snapshot
        found = snapshot.sandbox(self._sandbox.id)
        if found is not None:
            self._sandbox = found
        if self.is_mounted:
            self._title()

    @work(group="log", exclusive=True)
    async def _follow(self) -> None:
        """Read what is added, in a thread, until the screen goes or the kind changes."""
        view = self._view
        view.clear()
        source = self._service.open_log(self._sandbox.id, self._kind)
        try:
            while True:
                view.append(await asyncio.to_thread(_read_lines, source))
                self._title()
                await asyncio.sleep(POLL_S)
        finally:
            source.close()

    def _title(self) -> None:
        view, sandbox = self._view, self._sandbox
        title = f"{sandbox.name} · {TITLES[self._kind]} · {state_text(sandbox.state)}"
        words = []
        if view.query_text:
            at, count = view.match_position
            words.append(
                f"/{view.query_text} {at} of {count}" if count else f"/{view.query_text} not found"
            )
        words.append("following" if view.following else f"{self._hint('follow')} follows")
        words.append("wrapped" if view.wrapped else "cut")
        below = " · ".join(words) if view.line_count else "nothing yet"
        view.border_title = Content(plain(title) if self._ascii else title)
        view.border_subtitle = Content(plain(below) if self._ascii else below)

    def _hint(self, action_id: str) -> str:
        return self._snapshot.keymap.hint(action_id, Scope.LOG.value)

    def on_paste(self, event: events.Paste) -> None:
        self.notify(refuse_paste(event), severity="warning", markup=False)

    # Actions

    def action_do(self, action_id: str) -> None:
        action = find_action(action_id, Scope.LOG)
        getattr(self, f"do_{action.id}")()
        self._title()

    def do_follow(self) -> None:
        self._view.set_following(not self._view.following)

    def do_wrap(self) -> None:
        self._view.set_wrapped(not self._view.wrapped)

    def do_kind(self) -> None:
        self._kind = LogKind.QEMU if self._kind is LogKind.CONSOLE else LogKind.CONSOLE
        self._follow()

    def do_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        field.focus()

    def do_next(self) -> None:
        self._step(1)

    def do_previous(self) -> None:
        self._step(-1)

    def _step(self, by: int) -> None:
        if not self._view.query_text:
            self.notify(f"{self._hint('search')} searches first", markup=False, timeout=3)
        else:
            self._view.step(by)

    def do_command(self) -> None:
        cast("QuicksandApp", self.app).open_command_line()

    def do_help(self) -> None:
        self.app.push_screen(HelpScreen(Scope.LOG, ascii_only=self._ascii))

    def do_back(self) -> None:
        field = self.query_one("#search", Input)
        if field.display or self._view.query_text:
            field.display = False
            field.value = ""
            self._view.search("")
            self._view.focus()
        else:
            self.dismiss(None)

    @on(Input.Changed, "#search")
    def _search_live(self, event: Input.Changed) -> None:
        self._view.search(event.value)
        self._title()

    @on(Input.Submitted, "#search")
    def _search_done(self) -> None:
        self.query_one("#search").display = False
        self._view.focus()


def _read_lines(source: LogSource) -> list[str]:
    """New text as lines that can be shown; an escape sequence cut in two shows harmlessly."""
    text = source.read()
    return sanitise_lines(text) if text else []
