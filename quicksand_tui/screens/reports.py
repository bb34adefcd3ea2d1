"""Screens to read or look at: the command log, reports, failures, and the screen at a
checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.cockpit.checkpoint_previews import ThenAndNow
from quicksand_tui.kit.base import Dialog
from quicksand_tui.model.text import plain
from quicksand_tui.widgets.bars import command_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import ComposeResult

    from quicksand_tui.door.service import EngineService
    from quicksand_tui.model.jobs import CommandRecord, Failure
    from quicksand_tui.model.shown_sandboxes import CheckpointView, SandboxView
    from quicksand_tui.model.specs import Told


NOTHING = "You have done nothing yet. Your actions will be listed here as commands."


class CommandsScreen(Dialog[None]):
    """Shows the command log, newest last."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter,at", "leave", "close", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("g", "scroll(-1000)", show=False),
        Binding("G", "scroll(1000)", show=False),
    ]

    def __init__(self, log: Sequence[CommandRecord], *, ascii_only: bool) -> None:
        super().__init__()
        self._log = tuple(log)
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        lines = [command_content(record) for record in self._log] or [Content(NOTHING)]
        content = Content("\n").join(lines)
        keys = "y copies all · esc closes"
        with VerticalScroll(classes="dialog wide", id="commands") as box:
            box.border_title = Content("Commands")
            box.border_subtitle = Content(plain(keys) if self._ascii else keys)
            yield Static(Content(plain(content.plain)) if self._ascii else content, markup=False)

    def on_mount(self) -> None:
        self.query_one("#commands").scroll_end(animate=False)

    def action_copy(self) -> None:
        self.app.copy_to_clipboard("\n".join(record.command for record in self._log))
        self.notify("Copied, if the terminal allows it", markup=False, timeout=3)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#commands").scroll_relative(y=lines, animate=False)


class ReportScreen(Dialog[None]):
    """Shows a report. Enter or Escape closes it."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q", "leave", "close", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(self, told: Told, *, ascii_only: bool) -> None:
        super().__init__()
        self._told = told
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog wide", id="report") as box:
            box.border_title = self._text(self._told.summary)
            box.border_subtitle = self._text("enter closes")
            yield Static(self._text("\n".join(self._told.lines)), markup=False)

    def _text(self, text: str) -> Content:
        return Content(plain(text) if self._ascii else text)

    def action_scroll(self, lines: int) -> None:
        self.query_one("#report").scroll_relative(y=lines, animate=False)


class FailureScreen(Dialog[None]):
    """Shows a `Failure`. Enter or Escape closes it, y copies it."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q", "leave", "close", show=False),
        Binding("y", "copy", "copy", show=False),
        Binding("j", "scroll(1)", show=False),
        Binding("k", "scroll(-1)", show=False),
    ]

    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self._failure = failure

    def compose(self) -> ComposeResult:
        failure = self._failure
        with Vertical(classes="dialog danger wide") as box:
            box.border_title = Content(failure.title)
            box.border_subtitle = Content("enter closes · y copies")
            yield Static(Content(failure.message), markup=False, id="message")
            if failure.hint:
                yield Static(Content(failure.hint), markup=False, classes="note", id="hint")
            if failure.log:
                with VerticalScroll(id="tail"):
                    yield Static(Content("\n".join(failure.log)), markup=False)

    def on_mount(self) -> None:
        for tail in self.query("#tail"):
            tail.focus()
            tail.scroll_end(animate=False)

    def action_copy(self) -> None:
        failure = self._failure
        lines = (failure.title, failure.message, failure.hint, *failure.log)
        self.app.copy_to_clipboard("\n".join(line for line in lines if line))
        self.notify("Copied, if the terminal allows it", markup=False, timeout=3)

    def action_scroll(self, lines: int) -> None:
        for tail in self.query("#tail"):
            tail.scroll_relative(y=lines, animate=False)


class LookScreen(Dialog[None]):
    """Shows the screen at a checkpoint beside the present one, or that of another checkpoint. Small
    terminals have no room for it below the checkpoint's facts."""

    CSS_PATH = "dialogs.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,q,o,space", "leave", "close", show=False),
    ]

    def __init__(
        self,
        service: EngineService,
        sandbox: SandboxView,
        checkpoint: CheckpointView,
        compared: CheckpointView | None,
        *,
        ascii_only: bool,
    ) -> None:
        super().__init__()
        self._shown = (sandbox, checkpoint, compared)
        self._ascii = ascii_only
        self._screens = ThenAndNow(service, ascii_only=ascii_only)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog", id="look") as box:
            title = f"{self._shown[0].name} · esc closes"
            box.border_title = Content(plain(title) if self._ascii else title)
            yield self._screens

    def on_mount(self) -> None:
        self._screens.show(*self._shown)
