"""The log tab: a guest's console, QEMU's stderr, the sandbox's events, or this app's commands."""

from __future__ import annotations

import asyncio
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.containers import Vertical
from textual.widgets import Input

from quicksand_tui.actions.all_actions import Scope, in_scope
from quicksand_tui.cockpit.part import KnownChanged, PartWidget
from quicksand_tui.door.service_protocol import LogKind, LogSource
from quicksand_tui.kit.base import tell
from quicksand_tui.kit.key_handling import bindings_of
from quicksand_tui.model.amounts import clock_text, seconds_text
from quicksand_tui.model.jobs import OperationError
from quicksand_tui.model.text import error_text, sanitise_lines
from quicksand_tui.widgets.bars import OUTCOMES
from quicksand_tui.widgets.inputs import LineInput
from quicksand_tui.widgets.log_view import LogView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from textual.app import ComposeResult
    from textual.binding import BindingType

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.jobs.operations import Operations
    from quicksand_tui.kit.key_handling import Keys
    from quicksand_tui.model.shown_sandboxes import SandboxView
    from quicksand_tui.views.happenings import Happening

POLL_S = 0.5
"""Seconds between two reads of a log."""


class Kind(StrEnum):
    """The kinds of logs, with their titles."""

    CONSOLE = "console"
    QEMU = "QEMU's messages"
    EVENTS = "events"
    COMMANDS = "commands"


EMPTY = {
    Kind.CONSOLE: "The guest has written nothing to its console yet.",
    Kind.QEMU: "QEMU has written no messages.",
    Kind.EVENTS: "Nothing is known to have happened to it.",
    Kind.COMMANDS: "No command has been run here yet.",
}
FILES = {Kind.CONSOLE: LogKind.CONSOLE, Kind.QEMU: LogKind.QEMU}


class LogPanel(PartWidget, Vertical):
    """Follows a log of one sandbox while it is visible."""

    scope = Scope.LOG
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of(in_scope(Scope.LOG))]

    def __init__(
        self,
        service: EngineService,
        events: Callable[[], Sequence[Happening]],
        operations: Operations,
        keys: Keys,
        *,
        ascii_only: bool,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.ascii_only = ascii_only
        self.kind = Kind.CONSOLE
        self.view = LogView(id="log")
        self._service = service
        self._events = events
        self._operations = operations
        self._app_keys = keys
        self._search = LineInput(placeholder="search", id="search", compact=True)
        self._followed: tuple[str, Kind] | None = None
        """The sandbox and the kind of the log that is followed."""
        self._sandbox_name = ""
        self._titles = ("", "")
        self._trouble = ""
        """The reason why the log could not be read just now."""

    def compose(self) -> ComposeResult:
        yield self.view
        self._search.display = False
        yield self._search

    def show(self, sandbox: SandboxView | None) -> None:
        """Follows the log of a sandbox; stops with None."""
        wanted = None if sandbox is None else (sandbox.id, self.kind)
        self._sandbox_name = "" if sandbox is None else sandbox.name
        if wanted != self._followed:
            self._followed = wanted
            self._trouble = ""
            self._clear()
            if wanted is None:
                self.workers.cancel_group(self, "log")
            else:
                self._follow(*wanted)
        self._show_title()

    def _clear(self) -> None:
        kind = self._app_keys.map.hint("kind", Scope.LOG.value)
        self.view.empty_text = self.fit(f"{EMPTY[self.kind]} {kind} shows another log.").plain
        self.view.clear()

    @work(group="log", exclusive=True)
    async def _follow(self, sandbox_id: str, kind: Kind) -> None:
        """Reads new lines in a thread, until it is cancelled."""
        if kind not in FILES:
            await self._follow_lines(sandbox_id, kind)
            return
        source: LogSource | None = None
        try:
            while True:
                try:
                    if source is None:
                        source = self._service.open_log(sandbox_id, FILES[kind])
                    self.view.append(await asyncio.to_thread(_read_lines, source))
                    self._trouble = ""
                except (OSError, OperationError) as error:
                    self._trouble = f"✗ it cannot be read: {error_text(error)}"
                self._show_title()
                await asyncio.sleep(POLL_S)
        finally:
            if source is not None:
                source.close()

    async def _follow_lines(self, sandbox_id: str, kind: Kind) -> None:
        shown: list[str] = []
        while True:
            lines = [*self._lines_of(sandbox_id, kind), ""]
            if lines != shown:
                shown = lines
                self.view.clear()
                self.view.append(lines)
            self._show_title()
            await asyncio.sleep(POLL_S)

    def _lines_of(self, sandbox_id: str, kind: Kind) -> Iterator[str]:
        if kind is Kind.COMMANDS:
            for record in self._operations.log:
                if sandbox_id not in record.about:
                    continue
                took = "" if record.seconds is None else f" {seconds_text(record.seconds)}"
                yield self.fit(f"$ {record.command}  {OUTCOMES[record.outcome][0]}{took}").plain
            return
        for happening in self._events():
            if happening.sandbox_id == sandbox_id:
                when = clock_text(happening.when, time.time())
                yield self.fit(f"{when}  {happening.text}").plain

    def _show_title(self) -> None:
        if not self.is_mounted:
            return
        view = self.view
        words = []
        if view.query_text:
            at, count = view.match_position
            found = f"{at} of {count}" if count else "not found"
            words.append(f"/{view.query_text} {found}")
        follow = self._app_keys.map.hint("follow", Scope.LOG.value)
        words.append("following" if view.following else f"{follow} follows")
        words.append("wrapped" if view.wrapped else "cut")
        below = " · ".join(words) if view.line_count else "nothing yet"
        below = self._trouble or below
        title = f"{self._sandbox_name} · {self.kind.value}" if self._sandbox_name else ""
        titles = (title, below if self._sandbox_name else "")
        if titles != self._titles:
            self._titles = titles
            self.view.border_title = self.fit(titles[0])
            self.view.border_subtitle = self.fit(titles[1])
            self.post_message(KnownChanged())  # the line of tabs has the kind

    # Actions, by the registry's ids

    def do_follow(self) -> None:
        self.view.set_following(not self.view.following)
        self._show_title()

    def do_wrap(self) -> None:
        self.view.set_wrapped(not self.view.wrapped)
        self._show_title()

    def do_kind(self) -> None:
        kinds = list(Kind)
        self.kind = kinds[(kinds.index(self.kind) + 1) % len(kinds)]
        followed = self._followed
        if followed is not None:
            self._followed = (followed[0], self.kind)
            self._trouble = ""
            self._clear()
            self._follow(*self._followed)
        self._show_title()

    def do_copy(self) -> None:
        """Copies all lines that are kept."""
        if not self.view.line_count:
            tell(self, "There is nothing to copy yet")
            return
        self.app.copy_to_clipboard(self.view.text)
        tell(self, f"Copied {self.view.line_count} lines, if the terminal allows it")

    def do_save(self) -> None:
        if not self.view.line_count:
            tell(self, "There is nothing to save yet")
            return
        when = time.strftime("%Y%m%d-%H%M%S")
        kind = self.kind.name.lower()
        self._save(Path(f"{self._sandbox_name}-{kind}-{when}.log"), self.view.text)

    @work(group="save")
    async def _save(self, path: Path, text: str) -> None:
        """Writes a new file; an existing one stays."""
        try:
            await asyncio.to_thread(_write_new, path, text)
        except OSError as error:
            why = error.strerror or str(error)
            tell(self, f"The log was not saved: {path}: {why}", severity="warning")
        else:
            tell(self, f"Saved as {path}")

    def do_search(self) -> None:
        self._search.display = True
        # At once, because the next keys are the search's.
        self.screen.set_focus(self._search)

    def do_next(self) -> None:
        self._step(1)

    def do_previous(self) -> None:
        self._step(-1)

    def _step(self, by: int) -> None:
        if not self.view.query_text:
            search = self._app_keys.map.hint("search", Scope.LOG.value)
            tell(self, f"{search} searches first")
        else:
            self.view.step(by)
            self._show_title()

    def clear_search(self) -> bool:
        """Ends the search; returns False if there is none."""
        if not self._search.display and not self.view.query_text:
            return False
        self._search.display = False
        self._search.value = ""
        self.view.search("")
        self.screen.set_focus(self.view)
        self._show_title()
        return True

    @on(Input.Changed, "#search")
    def _search_live(self, event: Input.Changed) -> None:
        event.stop()
        self.view.search(event.value)
        self._show_title()

    @on(Input.Submitted, "#search")
    def _search_done(self, event: Input.Submitted) -> None:
        event.stop()
        self._search.display = False
        self.screen.set_focus(self.view)


def _write_new(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8", errors="replace") as file:
        file.write(text.rstrip("\n") + "\n")


def _read_lines(source: LogSource) -> list[str]:
    """Returns new lines, sanitised; half an escape sequence is harmless text. Raises OSError."""
    text = source.read()
    return sanitise_lines(text) if text else []
