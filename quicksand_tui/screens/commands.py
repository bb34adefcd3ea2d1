"""What was done in this app, as the commands that do the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.screens.base import Dialog
from quicksand_tui.text import plain
from quicksand_tui.widgets.command_line import command_content

if TYPE_CHECKING:
    from quicksand_tui.command_record import CommandRecord

NOTHING = "Nothing was done yet. Each action of yours will be here as a command."


class CommandsScreen(Dialog[None]):
    """The command log, newest last."""

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
