"""An error: what happened, what to do, and what the machine said last."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from quicksand_tui.screens.base import Dialog

if TYPE_CHECKING:
    from quicksand_tui.failures import Failure


class FailureScreen(Dialog[None]):
    """Shows a `Failure`. Enter or escape closes it, y copies it."""

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
